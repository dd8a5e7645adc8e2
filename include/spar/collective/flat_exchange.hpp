// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How entries get to owners and back where all ranks are alike: straight to each owner, and evened out before they come
// back (Ok-Topk, sections 3.1.1 and 3.1.2).
#pragma once

#include <spar/collective/balance_and_allgather.hpp>
#include <spar/collective/split.hpp>
#include <spar/topology/ownership.hpp>

#include <cstdint>
#include <span>
#include <utility>

namespace spar {

/// The topology of Ok-Topk; that of a tree is `on_tree`. Blocks of indices have owners, rank r block r.
struct flat {
  void validate_ranks(rank_t) const noexcept {}
  [[nodiscard]] static std::uint64_t agreed() noexcept { return 0; }
  /// What the blocks should be to each other.
  [[nodiscard]] static uniform_ownership due(std::uint64_t n, rank_t ranks) noexcept { return {n, ranks}; }

  /// The sums of the indices between a rank's `bounds`. `residual`, where it is not empty, gets what this rank's
  /// encodings lose, here and in `allgather`.
  template <transport Net, element T, index_type Index, reduction<T> Op, class Storage = storage::coo>
  task<stream<T, Index>> reduce_scatter(channel<Net> net, stream_view<T, Index> mine,
                                        std::span<const std::uint64_t> bounds, Op op, Storage store = {},
                                        std::span<T> residual = {}) const {
    return split(net, mine, bounded_ownership{bounds}, op, static_cast<T*>(nullptr), store, residual);
  }
  /// All ranks' entries; `shares`: where each rank's begins in their joint order, and how many there are.
  template <transport Net, element T, index_type Index, class Storage = storage::coo>
  task<stream<T, Index>> allgather(channel<Net> net, stream<T, Index> mine, std::span<const std::uint64_t>,
                                   std::span<const std::uint64_t> shares, bool& evened, Storage store = {},
                                   std::span<T> residual = {}) const {
    return balance_and_allgather(net, std::move(mine), shares, evened, store, residual);
  }
};

} // namespace spar
