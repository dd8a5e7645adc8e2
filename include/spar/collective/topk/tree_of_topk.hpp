// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The schedule of gTopk (Shi et al., ICDCS 2019; Ok-Topk, section 2): ranks reduce their entries along a binomial tree,
// in which every inner node keeps only the k largest entries of its sum, and the root broadcasts the result.
#pragma once

#include <spar/collective/basic/binomial.hpp>
#include <spar/collective/selected_sum.hpp>
#include <spar/collective/wire/stream_wire.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/selector/amount.hpp>
#include <spar/selector/selector.hpp>
#include <spar/storage/merge.hpp>

#include <cstdint>
#include <limits>
#include <string_view>
#include <utility>

namespace spar::inline v0_1 {

/// The schedule of gTopk, which takes 2 ceil(log2 P) rounds. A message has at most k entries, or up to `most` entries
/// if the selector's `bounds(n)` allow more than k (see topk_bounds). An inner node adds the entries that it drops to
/// its own residual, so the sum and the residuals of all ranks together equal the contributions of all ranks. Part of a
/// rank's contribution may be in another rank's residual.
struct tree_of_topk {
  static constexpr slot fills = slot::schedule;
  static constexpr std::string_view name = "tree_of_topk";
  /// Whether streams may be in any memory: all work on them is that of `channel::work`.
  static constexpr bool streams_anywhere = true;

  template <class Selector, class Storage, class Topology>
  static auto accepts() {
    if constexpr (!selector_with_bounds<Selector>)
      return needs_k();
    else
      return detail::accepts_entries_alone<Storage>();
  }
  static constexpr void validate(std::uint64_t) noexcept {}
  static constexpr void options(auto&&) noexcept {}

  /// Sums the selected entries `mine` of all ranks, and keeps the k largest sums at each node of the tree. Entries that
  /// a node drops go into its residual of the `call`.
  template <transport Net, class Topology, class Storage, element T, index_type Index, reduction<T> Op>
  task<selected_sum<T, Index>> reduce(channel<Net> net, selected_call<Topology, Storage, T> call,
                                      sparse_stream<T, Index> mine, Op op) const& {
    net = net.in_order(call.over.order());
    const Storage store = call.store;
    const residual_view<T> residual = call.residual;
    const index_range all{0, mine.dimension()};
    const rank_t p = net.size();
    constexpr auto never_dense = std::numeric_limits<std::uint64_t>::max();
    const std::uint64_t k = call.bounds.k;
    selected_sum<T, Index> result;
    result.contributed = std::move(mine);
    sparse_stream<T, Index> sum;
    stream_view<T, Index> have = result.contributed.view();
    for (rank_t distance = 1; distance < p; distance *= 2) {
      if ((net.rank() & distance) != 0) {
        outgoing<Storage, T, Index> out;
        co_await net.send(net.rank() - distance, co_await out(net, store, have, all, step_of(0, net.rank())));
        co_await out.keep_error(net, store, have, all, residual);
        break;
      }
      if (net.rank() + distance >= p) continue;
      incoming<Storage, T, Index> in(net.work().memory());
      co_await net.receive(net.rank() + distance, in);
      const auto theirs = co_await in.view(net, store, all);
      if (theirs.is_dense())
        raise<corrupt_message>({"a dense stream of ", theirs.count(), " values arrived; expected the ", k,
                                " largest entries as a sparse stream"});
      // Of entries with equal magnitudes, those with lower indices stay in the sum.
      sum = co_await net.work().merge(have, theirs, all, never_dense, op);
      const sparse_stream<T, Index> dropped = co_await net.work().keep_largest(sum, k);
      residual.add(dropped.view().entries());
      net.compute(have.count() + theirs.count());
      have = sum.view();
    }
    const binomial_broadcast broadcast;
    result.sum = co_await broadcast(net, have, 0, store, residual);
    co_return result;
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;
};

} // namespace spar::inline v0_1
