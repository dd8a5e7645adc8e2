// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// SparCML's split-allgather over a tree: owners by the tree's portions of where the entries are. Beyond both papers.
#pragma once

#include <spar/collective/balanced_ownership.hpp>
#include <spar/collective/tree_exchange.hpp>
#include <spar/core/buffer.hpp>
#include <spar/core/task.hpp>
#include <spar/storage/merge.hpp>
#include <spar/transport/channel.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace spar {

/// The sum of sparse streams: ranks agree on the quantiles of all entries (see balance_ownership), reduce along the
/// tree, merging inside a host before anything crosses its link, and gather along it. Turns dense where that is
/// smaller. Where entries lie evenly `flexreduce` saves the agreeing.
struct tree_sparcml {
  static constexpr std::string_view name = "tree_sparcml";

  explicit tree_sparcml(const tree_cells& made) noexcept : cells(&made) {}
  explicit tree_sparcml(tree_cells&&) = delete; // they are borrowed

  void validate_ranks(rank_t ranks) const { on_tree(*cells).validate_ranks(ranks); }
  [[nodiscard]] std::uint64_t agreed() const noexcept { return on_tree(*cells).agreed(); }

  /// `residual`, where it is not empty, gets what this rank's encodings lose.
  template <transport Net, element T, index_type Index, reduction<T> Op, class Storage = storage::coo>
    requires storage_policy<Storage, T, Index>
  task<stream<T, Index>> operator()(channel<Net> net, stream_view<T, Index> mine, Op op, Storage store = {},
                                    std::span<T> residual = {}) const& {
    const std::uint64_t n = mine.dimension();
    stream<T, Index> sparse_copy;
    if (mine.is_dense()) {
      sparse_copy = to_sparse(mine, op, net.memory());
      mine = sparse_copy.view();
    }
    const auto owners = on_tree(*cells).due(n, net.size());
    buffer<std::uint64_t> bounds(net.memory(), static_cast<std::size_t>(owners.count()) + 1);
    std::fill_n(bounds.data(), bounds.size(), std::uint64_t{0});
    co_await balance_ownership(net, mine.indices(), owners, bounds.span(), true, n);
    const std::span<const std::uint64_t> owned = bounds.span();
    const stream<T, Index> block = co_await flex_reduce_scatter(net, &cells->plan(), mine, op, owned, store, residual);
    const T neutral = op.template neutral<T>();
    co_return co_await flex_allgather(net, &cells->plan(), block.view(), neutral, owned, store, residual);
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;

  const tree_cells* cells;
};

} // namespace spar
