// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Calls every selector, error feedback and optimizer on a communicator. Only compiled.
#pragma once

#include <spar/collective/topk/cheapest_owners.hpp>
#include <spar/collective/topk/pruned_owners.hpp>
#include <spar/collective/topk/quantile_owners.hpp>
#include <spar/selector/bucket_topk.hpp>
#include <spar/selector/gaussian.hpp>
#include <spar/spar.hpp>
#include <spar/storage/coded.hpp>
#include <spar/storage/qsgd.hpp>
#include <spar/system/bucketed_feedback.hpp>
#include <spar/system/eager_sgd.hpp>
#include <spar/system/fused.hpp>
#include <spar/system/partial_allreduce.hpp>
#include <spar/system/published.hpp>
#include <spar/tree.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace every_member {

namespace select = spar::selector;
namespace store = spar::storage;

/// Every member of an error feedback.
template <class T, class Net, class Algorithm>
std::size_t train(Net& net, Algorithm algorithm, std::vector<T>& x, std::vector<T>& weights) {
  using namespace spar;
  auto reducer = with_error_feedback<T>(algorithm);
  reducer(net, x);
  const auto sum = reducer.reduce(net, std::span<const T>(x));
  reducer.start(net, std::span(x)).wait();
  reducer.start(net, named{"gradient"}, std::span(x)).wait();
  (void)reducer.start_reduce(net, std::span<const T>(x)).wait();
  (void)reducer.start_reduce(net, named{"gradient"}, std::span<const T>(x)).wait();
  sgd_step(net, std::span(weights), std::span(x), T(0.1), reducer);
  descend(std::span(weights), sum.sum);
  reducer.set_residual(reducer.residual());
  reducer.set_algorithm(reducer.algorithm());
  reducer.load(reducer.save());
  reducer.take_over(reducer.save());
  (void)reducer.current_state();
  reducer.template validate<T>(x.size(), net.size(), average{});
  (void)reducer.report();
  auto moved = std::move(reducer);
  return moved.residual().size();
}

/// Error feedback with each selector and schedule.
template <class Net, class T>
std::size_t train_by_each(Net& net, std::vector<T>& x, std::vector<T>& weights, const spar::tree_plans& plans) {
  using namespace spar;
  const select::exact_topk top{.k = 10};
  const select::threshold_reuse reuse{.k = 10};
  return train(net, ok_topk_allreduce<>{.select = reuse}, x, weights) +
         train(net, topka_allreduce{.select = top}, x, weights) +
         train(net, gaussiank_allreduce{.select = {.density = 0.1}}, x, weights) +
         train(net, topkdsa_allreduce{.select = top}, x, weights) +
         train(net, gtopk_allreduce{.select = top}, x, weights) +
         train(net, compose(select::bucket_topk{.k = 10}, store::coded<>{}), x, weights) +
         train(net, compose(top, store::then<store::coo, store::qsgd<4>>{}, dsar_split{}), x, weights) +
         train(net, compose(reuse, pruned_owners{}), x, weights) +
         train(net, compose(reuse, cheapest_owners{}), x, weights) +
         train(net, compose(top, on_tree(plans), quantile_owners{}), x, weights) +
         train(net, compose(reuse, on_tree(plans), balanced_owners{}), x, weights);
}

/// Partial sums, eager-SGD, and fused sums of small tensors.
template <class Net, class T>
std::uint64_t train_eagerly(Net& net, std::vector<T>& x, std::vector<T>& weights) {
  using namespace spar;
  std::uint64_t rounds = 0;
  const auto by = [&](const auto& who) {
    auto sums = partial_allreduce<T>(net, x.size(), who, ring{}, average{});
    const std::span<T> values(x);
    (void)sums(values);
    (void)sums.start(values).wait();
    (void)sums.progress();
    sgd_step(std::span(weights), std::span(x), T(0.1), sums);
    (void)sums.drain(values);
    (void)sums.start_drain(values).wait();
    (void)sums.algorithm();
    rounds += sums.calls() + sums.activations_sent();
  };
  by(solo{});
  by(majority{});
  by(quorum{});
  by(everyone{});
  auto of_streams = partial_allreduce<sparse_stream<T>>(net, x.size());
  (void)of_streams(dense_view(x));
  eager_sgd<T, Net> optimizer(net, x.size());
  (void)optimizer.step(weights, x, T(0.1));
  (void)optimizer.finish(weights);
  (void)optimizer.progress();
  std::vector<std::size_t> sizes{x.size(), x.size()};
  fused_allreduce<Net, T> fused(net, sizes);
  fused.ready(0, x);
  rounds += fused.progress() ? 1 : 0;
  fused.wait();
  const std::vector<parameter> parameters{{"a", x.size()}, {"b", weights.size()}};
  bucketed_feedback<Net, T, topka_allreduce> buckets(net, parameters, {}, {.select = {.k = 1}});
  buckets.ready("a", x);
  buckets.ready("b", weights);
  rounds += buckets.progress() ? 1 : 0;
  buckets.wait();
  buckets.start(buckets.bucket_of("a"), x);
  (void)buckets.ended();
  buckets.rebuild(parameters, 1000);
  buckets.set_algorithm(topka_allreduce{.select = {.k = 2}});
  buckets.load(buckets.save());
  buckets.take_over(buckets.save());
  rounds += buckets.buckets() + buckets.reducer(0).residual().size() + buckets.residual("a").size();
  sgd_step(net, std::span(weights), std::span(x), T(0.1), ring{});
  return rounds + optimizer.steps() + fused.buckets();
}

} // namespace every_member
