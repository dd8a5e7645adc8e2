// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// FlexReduce: the allreduce over an asymmetric tree, planned once, executed often (FlexReduce, section III).
#pragma once

#include <spar/collective/barrier.hpp>
#include <spar/collective/flex_execute.hpp>
#include <spar/collective/flex_plan.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace spar {

/// An uneven reduce-scatter up the tree, then an uneven all-gather down; between them, of many dense values, a barrier.
/// On the level of a branch with d children each of its links carries n (d - 1) / d values each way in each half, which
/// is the least; one at most a quarter as fast as the others n in both halves together, the others then up to n in
/// each. On a flat tree it is the ring, on one with equal degrees BlueConnect.
///
/// The plan is borrowed until the call has ended. Throws `invalid_argument`, before anything is sent, where it is for
/// another dimension or another number of ranks; ranks with plans of different trees end in `mismatch`.
struct flexreduce {
  static constexpr std::string_view name = "flexreduce";

  explicit flexreduce(const flex_plan& made) noexcept : plan(&made) {}
  explicit flexreduce(flex_plan&&) = delete; // it is borrowed

  template <element T, class Op>
  void validate(std::span<T> x, const Op&) const {
    plan->check(x.size(), plan->ranks());
  }
  template <element T, index_type Index, class Op>
  void validate(const stream_view<T, Index>& mine, const Op&) const {
    plan->check(mine.dimension(), plan->ranks());
  }
  void validate_ranks(rank_t ranks) const { plan->check(plan->dimension(), ranks); }
  [[nodiscard]] std::uint64_t agreed() const noexcept { return plan->digest(); }

  template <transport Net, element T, reduction<T> Op>
  task<void> operator()(channel<Net> net, std::span<T> x, Op op) const& {
    co_await flex_reduce_scatter(net, plan, x, op);
    if (waits_between(net, x.size_bytes())) co_await barrier(net);
    co_await flex_allgather(net, plan, x);
  }

  /// `residual`, where it is not empty, gets what this rank's encodings lose.
  template <transport Net, element T, index_type Index, reduction<T> Op, class Storage = storage::coo>
    requires storage_policy<Storage, T, Index>
  task<stream<T, Index>> operator()(channel<Net> net, stream_view<T, Index> mine, Op op, Storage store = {},
                                    std::span<T> residual = {}) const& {
    const std::span<const std::uint64_t> no_cells;
    const stream<T, Index> block = co_await flex_reduce_scatter(net, plan, mine, op, no_cells, store, residual);
    const T neutral = op.template neutral<T>();
    co_return co_await flex_allgather(net, plan, block.view(), neutral, no_cells, store, residual);
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;

  const flex_plan* plan;

 private:
  /// Who is through early would take links from those who are not, and then have to wait for them. Not where a
  /// hundredth of the time is less than the barrier.
  template <transport Net>
  static bool waits_between(const channel<Net>& net, std::size_t bytes) {
    const network_model model = net.net().node().network();
    const auto rounds = static_cast<double>(std::bit_width(static_cast<std::uint32_t>(net.size() - 1)));
    return rounds * model.alpha < 0.01 * model.beta * static_cast<double>(bytes);
  }
};

/// The plan with which FlexReduce is the ring through the ranks of a tree from left to right.
inline flex_plan ring_plan(const tree& topology, std::uint64_t n) {
  tree_node ring;
  for (const rank_t r : topology.leaves()) ring.children.push_back({.rank = r});
  return flex_plan(tree(ring), n);
}

/// That with which it is BlueConnect (Cho et al. 2019), which on a tree that is not symmetric is the ring.
inline flex_plan blueconnect_plan(const tree& topology, std::uint64_t n) {
  return topology.is_symmetric() ? flex_plan(topology, n) : ring_plan(topology, n);
}

} // namespace spar
