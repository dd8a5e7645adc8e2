// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sparse allreduce by allgather: every rank gathers the streams of all ranks and merges them (the baseline TopkA of
// Ok-Topk, section 2).
#pragma once

#include <spar/collective/basic/allgather.hpp>
#include <spar/core/memory/buffer.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/storage/merge.hpp>

#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

namespace spar::inline v0_1 {

/// A sparse allreduce in ceil(log2 P) rounds: every rank gathers and merges the streams of all ranks. With k entries on
/// each rank, a rank sends and receives (P - 1) k entries.
struct gather_and_merge {
  static constexpr slot fills = slot::schedule;
  static constexpr std::string_view name = "gather_and_merge";
  /// Whether streams may be in any memory: all work on them is that of `channel::work`.
  static constexpr bool streams_anywhere = true;

  template <class Selector, class Storage, class Topology>
  static auto accepts() {
    return detail::accepts_entries_alone<Storage>();
  }
  static constexpr void validate(std::uint64_t) noexcept {}
  static constexpr void options(auto&&) noexcept {}

  /// The number of encodings of a rank's entries on their way to the result.
  [[nodiscard]] static constexpr std::int64_t encodings(rank_t) noexcept { return 1; }
  /// The largest number of additions that a rank's entries pass on their way to the result.
  [[nodiscard]] static constexpr std::int64_t additions(rank_t ranks) noexcept { return ranks - 1; }

  /// Allreduce of streams; the result is sparse. Adds the rounding errors of the encoding of this rank's stream to
  /// `residual`, unless `residual` is empty.
  template <transport Net, element T, index_type Index, reduction<T> Op, class Storage = storage::coo>
    requires storage_policy<Storage, T, Index>
  task<sparse_stream<T, Index>> operator()(channel<Net> net, stream_view<T, Index> mine, Op op, Storage store = {},
                                           residual_view<T> residual = {}) const& {
    sparse_stream<T, Index> sparse_copy;
    if (mine.is_dense()) {
      sparse_copy = co_await net.work().to_sparse(mine, op);
      mine = sparse_copy.view();
    }
    const bruck_allgather allgather;
    const auto all = co_await allgather(net, mine, false, store, residual);
    buffer<stream_view<T, Index>> parts(net.memory(), all.size());
    for (std::size_t r = 0; r < all.size(); ++r) parts.span()[r] = all.part(r);
    const index_range whole{0, mine.dimension()};
    auto sum = co_await net.work().merge_many(std::as_const(parts).span(), mine.dimension(), whole, op);
    // Merging three or more streams at once takes as long as merging all their entries twice.
    net.compute(all.count() * std::min<std::size_t>(2, all.size() - 1));
    co_return sum;
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;
};

} // namespace spar::inline v0_1
