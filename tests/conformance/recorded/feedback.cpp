// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The recorded allreduces with error feedback, and the optimizers, one per line.
#include "conformance/recorded/systems.hpp"

#include <spar/selector/bucket_topk.hpp>
#include <spar/storage/qsgd.hpp>
#include <spar/system/eager_sgd.hpp>
#include <spar/system/published.hpp>

namespace spar_test::recorded {
namespace {

/// eager-SGD in rounds of everyone, whose ranks average their weights after every second step. The recorded result is
/// the weights.
system eager_sgd_of_everyone(std::string name) {
  return system_of(std::move(name), takes::values, 5, [](spar::threads& net, const topologies&, std::uint64_t n) {
    using optimizer = spar::eager_sgd<float, spar::threads, spar::everyone>;
    const auto descend =
        std::make_shared<optimizer>(net, n, spar::everyone{}, spar::sparcml{}, spar::eager_sgd_options{.period = 2});
    return call([descend, weights = std::vector<float>(n, 1.0F)](const contribution& mine) mutable {
      auto gradient = converted<float>(mine.values);
      descend->step(weights, gradient, 0.125F);
      return outcome{.result = hash_of(std::span<const float>(weights))};
    });
  });
}

} // namespace

std::vector<system> systems_with_feedback() {
  using namespace spar;
  namespace select = spar::selector;
  namespace store = spar::storage;
  using on = const topologies&;
  const select::threshold_reuse one_percent{.density = 0.01};
  const select::exact_topk top{.density = 0.01};
  using quantised = store::then<store::coo, store::qsgd<4>>;
  return {
      // These systems find thresholds and boundaries in the first call only, or in some of the later calls as well.
      with_feedback<float>("ok_topk", ok_topk_allreduce<>{.select = one_percent}),
      with_feedback<float>(
          "ok_topk_renewed",
          compose(select::threshold_reuse{.density = 0.01, .period = 2, .epsilon = 0.05}, balanced_owners{.tau = 3})),
      with_feedback<float>("ok_topk_exact", ok_topk_allreduce<>{.select = {.density = 0.01, .epsilon = 0}}),
      with_feedback<float>("ok_topk_average", ok_topk_allreduce<>{.select = one_percent}, average{}),
      with_feedback<double>("ok_topk_double", ok_topk_allreduce<>{.select = one_percent}),
      with_feedback<float, std::uint64_t>("ok_topk_64_bit_indices", ok_topk_allreduce<>{.select = one_percent}),
      with_feedback<float>("ok_topk_tree",
                           [](on its) {
                             return compose(select::threshold_reuse{.density = 0.01, .period = 2}, on_tree(its.plans),
                                            balanced_owners{.tau = 3});
                           }),
      with_feedback<float>("topka", topka_allreduce{.select = top}),
      with_feedback<float>("gaussiank", gaussiank_allreduce{.select = {.density = 0.01}}),
      with_feedback<float>("topkdsa", topkdsa_allreduce{.select = top}),
      with_feedback<float>("gtopk", gtopk_allreduce{.select = top}),
      with_feedback<float>("exact_topk_split_qsgd4", compose(top, quantised{}, dsar_split{})),
      with_feedback<float>("bucket_topk_sparcml", compose(select::bucket_topk{.k = 5})),
      with_feedback<float>("exact_topk_tree_sparcml",
                           [=](on its) { return compose(top, on_tree(its.plans), quantile_owners{}); }),
      with_feedback<float>("all_values_compressed_ring_qsgd8", compose(store::qsgd<8>{}, ring{})),
      with_feedback<float>("all_values_compressed_flexreduce_qsgd8",
                           [](on its) { return flexreduce(its.flex, store::qsgd<8>{}); }),
      partial_of_everyone<float>("everyone_topka",
                                 [=](on) { return error_feedback<float, topka_allreduce>{{.select = top}}; }),
      eager_sgd_of_everyone("eager_sgd_everyone"),
  };
}

} // namespace spar_test::recorded
