// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The schedule of FlexReduce (section III): ranks reduce values along the chains of a plan, level by level up a tree,
// and the sums return along the same chains down the tree.
#pragma once

#include <spar/collective/allreduce/ring.hpp>
#include <spar/collective/basic/barrier.hpp>
#include <spar/collective/basic/largest.hpp>
#include <spar/collective/tree/compressed_flex.hpp>
#include <spar/collective/tree/flex_execute.hpp>
#include <spar/collective/tree/tree_plans.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/storage/storage.hpp>
#include <spar/topology/flat.hpp>
#include <spar/topology/flex_plan.hpp>
#include <spar/topology/ownership.hpp>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace spar::inline v0_1 {

/// A reduce-scatter up the tree, then an all-gather down the tree; ranks may own ranges of different sizes. A barrier
/// separates the two halves if a dense vector, sent without a codec, is so large that the barrier costs less than 1 %
/// of the vector's transfer time. In each half, every link to one of the d children of a branch transfers n (d - 1) / d
/// values each way, which is the minimum. An exception is a branch in which one link has at most a quarter of the
/// bandwidth of any other: that link transfers n values in both halves together, and the other links up to n values in
/// each half. On a flat topology this schedule is the ring, and on a symmetric tree BlueConnect.
///
/// With a block codec, every hop encodes the partial sum again, and each owner encodes its sum once for the way down.
/// If the codec cannot encode the sum of some owner, all sums travel down the tree as plain values. With a codec that
/// may fail in this way, ranks take ceil(log2 P) additional rounds to agree on the format. Throws `invalid_argument` if
/// the codec's `can_encode` throws it.
///
/// A codec whose pieces must stay whole encodes the cells of the topology, which then begin at multiples of its grain.
/// They travel as streams do: the ranks of a chain send directly to its root, and the root to them.
struct chains {
  static constexpr slot fills = slot::schedule;
  static constexpr std::string_view name = "chains";
  /// Whether dense values may be in any memory: all work on them is that of `channel::work`.
  template <class Storage>
  static constexpr bool values_anywhere = true;
  /// Whether streams may be in any memory: the same.
  static constexpr bool streams_anywhere = true;
  static constexpr bool whole_pieces = true; ///< blocks begin at multiples of a codec's grain

  template <class Selector, class Storage, class Topology>
  static nothing_against accepts();
  static constexpr void validate(std::uint64_t) noexcept {}
  void options(auto&&) const noexcept {}

  /// An upper bound on the number of times that a contribution is encoded: once at each hop of the longest chain of
  /// every level of `plan`, and once as part of an owner's sum.
  [[nodiscard]] static std::int64_t encodings(const flex_plan& plan) noexcept {
    std::int64_t hops = plan.ranks() > 1 ? 1 : 0;
    for (std::size_t l = 0; l < plan.levels(); ++l) hops += static_cast<std::int64_t>(plan.longest_chain(l)) - 1;
    return hops;
  }

  /// Reduces dense values in place, along the topology's plan for x.size() values. Adds the rounding errors of this
  /// rank's encodings to `residual`, unless `residual` is empty.
  template <transport Net, planned_topology Topology, element T, reduction<T> Op, class Storage>
  task<void> operator()(channel<Net> net, const Topology& over, std::span<T> x, Op op, Storage store,
                        residual_view<T> residual) const& {
    if constexpr (storage::plain_blocks<Storage>)
      return plain(net, &over.plan(x.size()), x, op);
    else if constexpr (detail::encodes_whole_pieces<storage::blocks_type<Storage>>)
      return in_grains(net, over, x, op, store, residual);
    else
      return compressed(net, &over.plan(x.size()), x, op, storage::blocks_of(store), residual);
  }
  template <transport Net, planned_topology Topology, element T, index_type Index, reduction<T> Op, class Storage>
  task<sparse_stream<T, Index>> operator()(channel<Net> net, const Topology& over, stream_view<T, Index> mine, Op op,
                                           Storage store, residual_view<T> residual) const& {
    return streams(net, &over.plan(mine.dimension()), mine, op, store, residual);
  }

  /// On a topology without plans, runs the ring over the ranks in the topology's order.
  template <transport Net, class Topology, class X, class Op, class Storage, element T>
    requires(!planned_topology<Topology>)
  auto operator()(channel<Net> net, const Topology& over, X x, Op op, Storage store, residual_view<T> residual) const& {
    static constexpr ring around{};
    return around(net.in_order(over.order()), x, op, store, residual);
  }

  /// Reduces the dense values `x` in place along `plan`, without a codec.
  template <transport Net, element T, class Op>
  static task<void> plain(channel<Net> net, const flex_plan* plan, std::span<T> x, Op op) {
    co_await flex_reduce_scatter(net, plan, x, op);
    static constexpr dissemination_barrier barrier{};
    if (waits_between(net, x.size_bytes())) co_await barrier(net.on_host());
    co_await flex_allgather(net, plan, x);
  }
  /// Reduces the dense values `x` in place along `plan`; messages are encoded by `codec`. Adds the rounding errors of
  /// this rank's encodings to `residual`, unless `residual` is empty.
  template <transport Net, element T, class Op, class Codec>
  static task<void> compressed(channel<Net> net, const flex_plan* plan, std::span<T> x, Op op, Codec codec,
                               residual_view<T> residual) {
    if (net.size() == 1) co_return;
    co_await flex_reduce_scatter(net, plan, x, op, &codec, residual);
    if constexpr (requires(std::span<const T> values) { codec.can_encode(values); }) {
      // If the codec cannot encode the sums of one owner, all owners send plain values, because the all-gather of a
      // plan sends either only encoded or only plain values.
      const index_range own = (*plan)[net.rank()];
      const block_coder coder(net, codec);
      const bool carried = co_await coder.can_encode(std::span<const T>(x.subspan(own.begin, own.size())));
      std::uint64_t unsupported = carried ? 0 : 1;
      co_await find_largest(net.template with_element<std::uint64_t>().on_host(), unsupported);
      if (unsupported > 0) {
        co_await flex_allgather(net, plan, x);
        co_return;
      }
    }
    co_await flex_allgather(net, plan, x, &codec, residual);
  }

 private:
  /// Reduces the dense values `x` in place, by cells that begin at multiples of the codec's grain.
  template <transport Net, class Topology, element T, class Op, class Storage>
  static task<void> in_grains(channel<Net> net, Topology over, std::span<T> x, Op op, Storage store,
                              residual_view<T> residual) {
    const grained_ownership whole{x.size(), 1, detail::grain_of(storage::blocks_of(store))};
    const auto cells = over.owners(whole.grains(), net.size());
    buffer<std::uint64_t> room(net.memory(), static_cast<std::size_t>(cells.count()) + 1);
    for (rank_t c = 0; c <= cells.count(); ++c)
      room.span()[static_cast<std::size_t>(c)] = std::min(cells.begin(c) * whole.grain, whole.n);
    const std::span<const std::uint64_t> bounds = std::as_const(room).span();
    const auto mine = stream_view<T, std::uint64_t>::dense(x.size(), 0, x);
    const auto block = co_await reduce_to_owners(net, over, mine, bounds, op, store, residual);
    const auto sum = co_await gather_blocks(net, over, block.view(), bounds, op, store, residual);
    net.work().write_dense(sum.view(), x, op);
  }

  template <transport Net, element T, index_type Index, class Op, class Storage>
  static task<sparse_stream<T, Index>> streams(channel<Net> net, const flex_plan* plan, stream_view<T, Index> mine,
                                               Op op, Storage store, residual_view<T> residual) {
    const std::span<const std::uint64_t> no_bounds; // empty, because the plan's ranges are ranges of indices
    const sparse_stream<T, Index> block = co_await flex_reduce_scatter(net, plan, mine, op, no_bounds, store, residual);
    co_return co_await flex_allgather(net, plan, block.view(), op.template neutral<T>(), no_bounds, store, residual);
  }

  /// Whether a barrier runs between the reduce-scatter and the all-gather. Without a barrier, a rank that finishes the
  /// reduce-scatter early starts the all-gather, which takes bandwidth from the ranks that still reduce, and later
  /// waits for these ranks. The barrier is left out if it takes longer than 1 % of the vector's transfer time.
  template <transport Net>
  static bool waits_between(const channel<Net>& net, std::size_t bytes) {
    const network_model model = net.net().node().network();
    const auto rounds = static_cast<double>(std::bit_width(static_cast<std::uint32_t>(net.size() - 1)));
    return rounds * model.alpha < 0.01 * model.beta * static_cast<double>(bytes);
  }
};

} // namespace spar::inline v0_1
