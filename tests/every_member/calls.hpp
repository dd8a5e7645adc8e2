// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Calls every collective, schedule and system on a communicator. Only compiled, as a user's program would be.
#pragma once

#include "../support/schedules.hpp"

#include <spar/collective/compressed/bound.hpp>
#include <spar/selector/nonzeros.hpp>
#include <spar/spar.hpp>
#include <spar/storage/coded.hpp>
#include <spar/storage/named_codec.hpp>
#include <spar/storage/qsgd.hpp>
#include <spar/storage/short_float.hpp>
#include <spar/storage/zfp.hpp>
#include <spar/strided.hpp>
#include <spar/topology/flex_plan.hpp>
#include <spar/topology/tree.hpp>
#include <spar/tree.hpp>

#include <cstdint>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace every_member {

namespace store = spar::storage;

/// Dense sums by each schedule.
template <class Net, class T>
void sum_values(Net& net, std::vector<T>& x, const spar::tree_plans& plans, const spar::flex_plan& plan) {
  using namespace spar;
  const auto by = [&](auto algorithm) { allreduce(net, std::span(x), algorithm); };
  allreduce(net, x);
  std::apply([&](const auto&... each) { (by(each), ...); }, spar_test::dense_schedules());
  by(compose(store::qsgd<8>{}, ring{}));
  by(compose(store::as_bfloat16{}, recursive_doubling{}));
  by(compose(store::named_codec("none"), cheapest{}));
  by(compose(store::bound{.error = 0.1}, ring{}));
  by(flexreduce(plans));
  by(flexreduce(plan, store::as_half{}));
  by(tree_dense(plans));
  allreduce(net, x, cheapest{}, average{});
  start_allreduce(net, x, ring{}, maximum{}).wait();
  allreduce(net, named{"dense"}, x);
  by(compose(selector::nonzeros{}, cheapest{}));
  allreduce(net, strided(x.data(), {2, 3}, {4, 1}), ring{});
}

/// Sums of streams by each schedule.
template <class Net, class T>
void sum_streams(Net& net, const spar::sparse_stream<T>& mine, const spar::tree_plans& plans) {
  using namespace spar;
  const auto by = [&](auto algorithm) { (void)allreduce(net, mine, algorithm); };
  std::apply([&](const auto&... each) { (by(each), ...); }, spar_test::stream_schedules());
  by(split_allgather<>{});
  by(gather_and_merge{});
  by(compose(store::coded<>{}, cheapest{}));
  by(compose(store::coded<7>{}, ssar_split{}));
  by(compose(store::then<store::coo, store::qsgd<4>>{}, dsar_split{}));
  by(flexreduce(plans));
  by(tree_sparcml(plans));
  (void)start_allreduce(net, mine.view(), ssar_split{}, sum{}).wait();
}

/// The other collectives.
template <class Net, class T>
void call_others(Net& net, std::vector<T>& x, const spar::sparse_stream<T>& mine) {
  using namespace spar;
  const std::vector<std::uint64_t> bounds{x.size()};
  const std::span values(x);
  (void)reduce_scatter(net, values, ring_reduce_scatter{});
  (void)reduce_scatter(net, mine, split_reduce_scatter{});
  (void)reduce_scatter(net, mine, ring_reduce_scatter{}, maximum{});
  (void)start_reduce_scatter(net, values).wait();
  (void)reduce_scatter(net, values, bounded_ownership(std::span(bounds)));
  (void)allgather(net, values);
  (void)allgather(net, mine);
  (void)allgather(net, values, bruck_allgather{});
  (void)start_allgather(net, mine).wait();
  (void)reduce(net, values, 0);
  (void)reduce(net, mine, 0, binomial_reduce{}, maximum{});
  (void)start_reduce(net, mine, 0).wait();
  broadcast(net, values, 0);
  (void)broadcast(net, mine, 0);
  (void)start_broadcast(net, values, 0).wait();
  const strided gaps(x.data(), {x.size() / 2}, {2});
  allreduce(net, gaps);
  start_allreduce(net, gaps, ring{}).wait();
  barrier(net);
  barrier(net, named{"barrier"});
  start_barrier(net).wait();
  start_barrier(net, named{"barrier"}).wait();
  auto first = start_allgather(net, values);
  auto second = std::move(first);
  if (!second.done()) second.cancel();
  (void)second.statistics();
  net.set_network(network_model{});
  leave(net);
  start_leave(net).wait();
}

/// What a program asks of a communicator.
template <class Net>
double ask(Net& net) {
  net.set_deadline(1);
  net.set_checksums(net.checksums());
  net.progress(false);
  return net.now() + net.deadline() + net.rank() + net.size() + static_cast<double>(net.last_call().messages_sent) +
         static_cast<double>(net.statistics().messages_sent) + static_cast<double>(net.memory().live()) +
         net.network().beta + (net.dead() ? net.failed_rank() : 0);
}

} // namespace every_member
