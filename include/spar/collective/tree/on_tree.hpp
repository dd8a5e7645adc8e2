// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The topology `on_tree`, and the parts of schedules that depend on the tree: how entries get to their owners and back,
// and which allreduce of dense values is the cheapest.
#pragma once

#include <spar/collective/allreduce/rabenseifner.hpp>
#include <spar/collective/compressed/two_shot.hpp>
#include <spar/collective/tree/chains.hpp>
#include <spar/collective/tree/flex_execute.hpp>
#include <spar/collective/tree/tree_plans.hpp>
#include <spar/core/address.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/storage/storage.hpp>
#include <spar/topology/ownership.hpp>

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace spar::inline v0_1 {

/// The topology of a network that is a tree, for vectors of any length n. The `tree_plans` must outlive the last call.
/// Schedules that use the tree, such as `chains`, reduce inside each host before they send anything over a slow link.
/// All other schedules number the ranks from left to right, so that the ranks of a host have consecutive numbers.
class on_tree {
 public:
  static constexpr slot fills = slot::topology;
  static constexpr std::string_view name = "tree";

  /// Refers to `plans`, which must outlive the last call.
  explicit on_tree(const tree_plans& plans) noexcept : plans_(&plans) {}
  explicit on_tree(tree_plans&&) = delete; // a temporary would be destroyed before the calls

  void validate(std::uint64_t, rank_t ranks) const {
    const flex_plan& cells = plans_->cells().plan();
    cells.check_shape(cells.dimension(), ranks);
  }
  void options(auto&& f) const { f("digest", plans_->digest()); }
  /// The ranks in the order of the leaves, from left to right.
  [[nodiscard]] rank_order order() const noexcept { return plans_->order(); }
  /// Where hosts begin in `order()`, and the number of ranks (see tree::hosts).
  [[nodiscard]] std::span<const rank_t> hosts() const noexcept { return plans_->hosts(); }
  /// The blocks of n indices, one for each cell of the tree.
  [[nodiscard]] portioned_ownership owners(std::uint64_t n, rank_t) const noexcept {
    return {n, plans_->cells().portions()};
  }
  /// FlexReduce's plan for n values.
  [[nodiscard]] const flex_plan& plan(std::uint64_t n) const { return plans_->plan(n); }
  /// The plans to which this topology refers.
  [[nodiscard]] const tree_plans& plans() const noexcept { return *plans_; }

 private:
  const tree_plans* plans_;
};

/// Reduces the entries of all ranks up the tree. Returns the sums at the indices in this rank's cells; cell c consists
/// of the indices in [bounds[c], bounds[c + 1]). The result is dense if dense values take fewer bytes than entries.
/// Adds the rounding errors of this rank's encodings to `residual`, unless `residual` is empty.
template <transport Net, element T, index_type Index, reduction<T> Op, class Storage>
task<sparse_stream<T, Index>> reduce_to_owners(channel<Net> net, const on_tree& over, stream_view<T, Index> mine,
                                               std::span<const std::uint64_t> bounds, Op op, Storage store,
                                               residual_view<T> residual) {
  return flex_reduce_scatter(net, &over.plans().cells().plan(), mine, op, bounds, store, residual);
}

/// Returns, on every rank, the entries of all ranks' sparse blocks. `shares.back()` is the expected number of these
/// entries, equal on all ranks. `mine` is this rank's block, and `bounds` are the bounds of all blocks. Sets `balanced`
/// to false, because on a tree ranks never move entries to balance the blocks. Adds the rounding errors of this rank's
/// encodings to `residual`, unless `residual` is empty. Throws `corrupt_message` if another number of entries arrives.
template <transport Net, element T, index_type Index, class Storage>
task<sparse_stream<T, Index>>
gather_shares(channel<Net> net, on_tree over, sparse_stream<T, Index> mine, std::span<const std::uint64_t> bounds,
              std::span<const std::uint64_t> shares, bool& balanced, Storage store, residual_view<T> residual) {
  balanced = false;
  const T absent{};
  sparse_stream<T, Index> all =
      co_await flex_allgather(net, &over.plans().cells().plan(), mine.view(), absent, bounds, store, residual);
  if (all.view().count() != shares.back()) {
    raise<corrupt_message>(
        {"all ranks' shares have ", all.view().count(), " entries in all; expected ", shares.back(), " entries"});
  }
  co_return all;
}

/// Returns, on every rank, the blocks of all ranks joined into one stream, which is dense if any block is dense;
/// `bounds` are the bounds of the blocks. Adds the rounding errors of this rank's encodings to `residual`, unless
/// `residual` is empty.
template <transport Net, element T, index_type Index, reduction<T> Op, class Storage>
task<sparse_stream<T, Index>> gather_blocks(channel<Net> net, const on_tree& over, stream_view<T, Index> block,
                                            std::span<const std::uint64_t> bounds, Op op, Storage store,
                                            residual_view<T> residual) {
  return flex_allgather(net, &over.plans().cells().plan(), block, op.template neutral<T>(), bounds, store, residual);
}

/// Reduces `x` in place by the cheapest allreduce, according to the model of the tree's links (see choose_on_tree).
/// With a block codec other than `storage::dense`, this is the cheapest of those that encode: `two_shot`, the ring or
/// FlexReduce. Adds the rounding errors of this rank's encodings to `residual`, unless `residual` is empty.
template <transport Net, element T, reduction<T> Op, class Storage>
task<void> cheapest_over(channel<Net> net, on_tree over, std::span<T> x, Op op, Storage store,
                         residual_view<T> residual) {
  const auto choose = [&] {
    if constexpr (storage::plain_blocks<Storage>)
      return over.plans().choice(x.size_bytes());
    else
      return over.plans().choice(x.size_bytes(), storage::blocks_of(store).template encoded_bytes<T>(x.size()));
  };
  const tree_choice chosen = choose();
  const rabenseifner halving;
  const two_shot in_two;
  const auto start = [&] {
    // A rank that chose another algorithm causes `mismatch`.
    if (chosen == tree_choice::rabenseifner || chosen == tree_choice::two_shot) {
      if constexpr (storage::plain_blocks<Storage>)
        return halving(net.with_algorithm(halving.name), x, op);
      else
        return in_two(net.with_algorithm(in_two.name), over, x, op, store, residual);
    }
    const bool around = chosen == tree_choice::ring;
    const flex_plan* plan = around ? &over.plans().ring(x.size()) : &over.plans().plan(x.size());
    const channel<Net> agreed = net.with_algorithm(around ? ring::name : chains::name);
    if constexpr (storage::plain_blocks<Storage>)
      return chains::plain(agreed, plan, x, op);
    else
      return chains::compressed(agreed, plan, x, op, storage::blocks_of(store), residual);
  };
  auto running = start();
  co_await std::move(running);
}

} // namespace spar::inline v0_1
