// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A split-allgather whose owners get entries in the proportions that the topology prescribes: each owner's block of
// indices lies between two quantiles of the indices of all ranks' entries. Extends SparCML (section
// 5.3.2) and FlexReduce (section III).
#pragma once

#include <spar/collective/topk/balanced_ownership.hpp>
#include <spar/collective/topk/flat_exchange.hpp>
#include <spar/core/memory/buffer.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/storage/merge.hpp>
#include <spar/storage/storage.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace spar::inline v0_1 {

/// Ranks compute the quantiles of the indices of all entries (see balance_ownership), reduce each block between two
/// quantiles to its owner, and gather the blocks. On a tree, the ranks of a host merge their entries before any entry
/// crosses the host's link. Sums turn dense if dense values take fewer bytes than entries. If entries are evenly
/// distributed over the indices, `split_allgather` or, on a tree, `chains` avoids the cost of computing quantiles.
struct quantile_owners {
  static constexpr slot fills = slot::schedule;
  static constexpr std::string_view name = "quantile_owners";
  /// Whether streams may be in any memory: all work on them is that of `channel::work`.
  static constexpr bool streams_anywhere = true;

  template <class Selector, class Storage, class Topology>
  static auto accepts() {
    if constexpr (!topology_with_owners<Topology>)
      return needs_owners();
    else if constexpr (!has_stream_codec<Storage> || straight_topology<Topology>)
      return detail::accepts_entries_alone<Storage>(); // rejects block codecs: ranks send dense sums only on a tree
    else
      return nothing_against();
  }
  static constexpr void validate(std::uint64_t) noexcept {}
  void options(auto&&) const noexcept {}

  template <transport Net, class Topology, element T, index_type Index, reduction<T> Op, class Storage>
  task<sparse_stream<T, Index>> operator()(channel<Net> net, Topology over, stream_view<T, Index> mine, Op op,
                                           Storage store, residual_view<T> residual) const& {
    if constexpr (straight_topology<Topology>) net = net.in_order(over.order());
    const std::uint64_t n = mine.dimension();
    sparse_stream<T, Index> sparse_copy;
    if (mine.is_dense()) {
      sparse_copy = co_await net.work().to_sparse(mine, op);
      mine = sparse_copy.view();
    }
    const auto owners = over.owners(n, net.size());
    buffer<std::uint64_t> bounds(net.memory(), static_cast<std::size_t>(owners.count()) + 1);
    std::fill_n(bounds.data(), bounds.size(), std::uint64_t{0});
    co_await balance_ownership(net, mine.indices(), owners, bounds.span(), true, n);
    const std::span<const std::uint64_t> owned = bounds.span();
    const sparse_stream<T, Index> block = co_await reduce_to_owners(net, over, mine, owned, op, store, residual);
    co_return co_await gather_blocks(net, over, block.view(), owned, op, store, residual);
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;
};

} // namespace spar::inline v0_1
