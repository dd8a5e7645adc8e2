// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The schedule of FlexReduce: along the chains of a plan, level by level up a tree and down again (FlexReduce, section
// III).
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

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace spar {

/// An uneven reduce-scatter up the tree, then an uneven all-gather down the tree; between the two, for many dense
/// values, a barrier. On the level of a branch with d children, each of its links carries n (d - 1) / d values each way
/// in each half, which is the minimum. A link that is at most a quarter as fast as the others carries n values in both
/// halves together, and the others then up to n values in each half. On a flat topology this is the ring, on a tree
/// with equal degrees BlueConnect.
///
/// With a block codec, partial sums are encoded at each hop, and the owners' sums once. Sums that the codec cannot
/// encode travel down the tree as plain values, on which ranks agree in ceil(log2 P) additional rounds. Throws
/// `invalid_argument` if the codec rejects a sum.
struct chains {
  static constexpr slot fills = slot::schedule;
  static constexpr std::string_view name = "chains";

  template <class Selector, class Storage, class Topology>
  static nothing_against accepts();
  static constexpr void validate(std::uint64_t) noexcept {}
  template <class F>
  void options(F&&) const noexcept {}

  /// How often a contribution is encoded: once for each hop of the chains on its way, and once in the sum.
  [[nodiscard]] static std::int64_t encodings(const flex_plan& plan) noexcept {
    std::int64_t hops = plan.ranks() > 1 ? 1 : 0;
    for (std::size_t l = 0; l < plan.levels(); ++l) hops += static_cast<std::int64_t>(plan.longest_chain(l)) - 1;
    return hops;
  }

  /// Dense values, in place. Adds the rounding errors of this rank's encodings to `residual`, unless `residual` is
  /// empty.
  template <transport Net, planned_topology Topology, element T, reduction<T> Op, class Storage>
  task<void> operator()(channel<Net> net, const Topology& over, std::span<T> x, Op op, Storage store,
                        std::span<T> residual) const& {
    if constexpr (storage::plain_blocks<Storage>)
      return plain(net, &over.plan(x.size()), x, op);
    else
      return compressed(net, &over.plan(x.size()), x, op, storage::blocks_of(store), residual);
  }
  template <transport Net, planned_topology Topology, element T, index_type Index, reduction<T> Op, class Storage>
  task<sparse_stream<T, Index>> operator()(channel<Net> net, const Topology& over, stream_view<T, Index> mine, Op op,
                                           Storage store, std::span<T> residual) const& {
    return streams(net, &over.plan(mine.dimension()), mine, op, store, residual);
  }

  /// On a topology without plans: the ring, in the topology's order.
  template <transport Net, class Topology, class X, class Op, class Storage, element T>
    requires(!planned_topology<Topology>)
  auto operator()(channel<Net> net, const Topology& over, X x, Op op, Storage store, std::span<T> residual) const& {
    static constexpr ring around{};
    return around(net.in_order(over.order()), x, op, store, residual);
  }

  /// Dense values along a plan, in place.
  template <transport Net, element T, class Op>
  static task<void> plain(channel<Net> net, const flex_plan* plan, std::span<T> x, Op op) {
    co_await flex_reduce_scatter(net, plan, x, op);
    if (waits_between(net, x.size_bytes())) co_await barrier(net);
    co_await flex_allgather(net, plan, x);
  }
  template <transport Net, element T, class Op, class Codec>
  static task<void> compressed(channel<Net> net, const flex_plan* plan, std::span<T> x, Op op, Codec codec,
                               std::span<T> residual) {
    if (net.size() == 1) co_return;
    co_await flex_reduce_scatter(net, plan, x, op, &codec, residual);
    if constexpr (requires(std::span<const T> values) { codec.carries(values); }) {
      // If the codec cannot encode the values of one rank, all ranks' values travel down as plain values.
      const index_range own = (*plan)[net.rank()];
      const block_coder coder(net, codec);
      std::uint64_t uncarried = coder.carries(std::span<const T>(x.subspan(own.begin, own.size()))) ? 0 : 1;
      co_await find_largest(net.template with_element<std::uint64_t>(), uncarried);
      if (uncarried > 0) {
        co_await flex_allgather(net, plan, x);
        co_return;
      }
    }
    co_await flex_allgather(net, plan, x, &codec, residual);
  }

 private:
  template <transport Net, element T, index_type Index, class Op, class Storage>
  static task<sparse_stream<T, Index>> streams(channel<Net> net, const flex_plan* plan, stream_view<T, Index> mine,
                                               Op op, Storage store, std::span<T> residual) {
    const std::span<const std::uint64_t> no_bounds; // the plan counts values, not cells
    const sparse_stream<T, Index> block = co_await flex_reduce_scatter(net, plan, mine, op, no_bounds, store, residual);
    co_return co_await flex_allgather(net, plan, block.view(), op.template neutral<T>(), no_bounds, store, residual);
  }

  /// Whether a barrier separates the two halves: a rank that finishes the first half early would take bandwidth from
  /// the others, and then have to wait for them. No barrier if it takes longer than a hundredth of the transfer time.
  template <transport Net>
  static bool waits_between(const channel<Net>& net, std::size_t bytes) {
    const network_model model = net.net().node().network();
    const auto rounds = static_cast<double>(std::bit_width(static_cast<std::uint32_t>(net.size() - 1)));
    return rounds * model.alpha < 0.01 * model.beta * static_cast<double>(bytes);
  }
};

} // namespace spar
