// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The topology of a tree, and what schedules do over it: how entries get to owners and back, and the cheapest allreduce
// of dense values.
#pragma once

#include <spar/collective/allreduce/rabenseifner.hpp>
#include <spar/collective/tree/chains.hpp>
#include <spar/collective/tree/flex_execute.hpp>
#include <spar/collective/tree/tree_plans.hpp>
#include <spar/core/address.hpp>
#include <spar/core/policy/slot.hpp>
#include <spar/storage/storage.hpp>
#include <spar/topology/ownership.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace spar {

/// The topology of a tree, for any n. The plans are borrowed until the last call has ended. Schedules that know of
/// trees reduce inside hosts before anything crosses a narrow link; the others number the ranks from left to right, so
/// that partners at small distances share a host.
class on_tree {
 public:
  static constexpr slot fills = slot::topology;
  static constexpr std::string_view name = "tree";

  explicit on_tree(const tree_plans& plans) noexcept : plans_(&plans) {}
  explicit on_tree(tree_plans&&) = delete; // they are borrowed

  void validate(std::uint64_t, rank_t ranks) const {
    const flex_plan& cells = plans_->cells().plan();
    cells.check(cells.dimension(), ranks);
  }
  template <class F>
  void options(F&& f) const {
    f("digest", plans_->digest());
  }
  [[nodiscard]] rank_order order() const noexcept { return plans_->order(); }
  [[nodiscard]] portioned_ownership due(std::uint64_t n, rank_t) const noexcept {
    return {n, plans_->cells().portions()};
  }
  [[nodiscard]] const flex_plan& plan(std::uint64_t n) const { return plans_->plan(n); }
  [[nodiscard]] const tree_plans& plans() const noexcept { return *plans_; }

 private:
  const tree_plans* plans_;
};

/// The sums of the indices in this rank's cells; dense where that is smaller. `residual`, where it is not empty, gets
/// what this rank's encodings lose, here and in what gathers the sums.
template <transport Net, element T, index_type Index, reduction<T> Op, class Storage>
task<sparse_stream<T, Index>> reduce_to_owners(channel<Net> net, const on_tree& over, stream_view<T, Index> mine,
                                               std::span<const std::uint64_t> bounds, Op op, Storage store,
                                               std::span<T> residual) {
  return flex_reduce_scatter(net, &over.plans().cells().plan(), mine, op, bounds, store, residual);
}

/// All ranks' sparse blocks, of numbers of entries that all know: how many there are is the last of `shares`.
template <transport Net, element T, index_type Index, class Storage>
task<sparse_stream<T, Index>>
gather_shares(channel<Net> net, on_tree over, sparse_stream<T, Index> mine, std::span<const std::uint64_t> bounds,
              std::span<const std::uint64_t> shares, bool& evened, Storage store, std::span<T> residual) {
  evened = false;
  const T absent{};
  sparse_stream<T, Index> all =
      co_await flex_allgather(net, &over.plans().cells().plan(), mine.view(), absent, bounds, store, residual);
  if (all.view().count() != shares.back()) {
    raise<corrupt_message>({"shares of ", all.view().count(), " entries arrived where ", shares.back(), " are due"});
  }
  co_return all;
}

/// All ranks' blocks; dense where one of them is.
template <transport Net, element T, index_type Index, reduction<T> Op, class Storage>
task<sparse_stream<T, Index>> gather_blocks(channel<Net> net, const on_tree& over, stream_view<T, Index> block,
                                            std::span<const std::uint64_t> bounds, Op op, Storage store,
                                            std::span<T> residual) {
  return flex_allgather(net, &over.plans().cells().plan(), block, op.template neutral<T>(), bounds, store, residual);
}

/// The cheapest by the model of the tree's links (see choose_on_tree), in place. A block codec that is not plain
/// travels along chains, of the ring or of the levels.
template <transport Net, element T, reduction<T> Op, class Storage>
task<void> cheapest_over(channel<Net> net, on_tree over, std::span<T> x, Op op, Storage store, std::span<T> residual) {
  const tree_choice chosen = over.plans().choice(x.size_bytes());
  const bool halves = storage::plain_blocks<Storage> && chosen == tree_choice::rabenseifner;
  const flex_plan* plan = nullptr;
  if (!halves) plan = chosen == tree_choice::ring ? &over.plans().ring(x.size()) : &over.plans().plan(x.size());
  const auto name = halves ? rabenseifner::name : chosen == tree_choice::ring ? ring::name : chains::name;
  const channel<Net> agreed = net.with_algorithm(name); // finds out a rank that chose otherwise
  const rabenseifner halving;
  const auto start = [&] {
    if constexpr (storage::plain_blocks<Storage>)
      return halves ? halving(agreed, x, op) : chains::plain(agreed, plan, x, op);
    else
      return chains::compressed(agreed, plan, x, op, storage::blocks_of(store), residual);
  };
  auto running = start();
  co_await std::move(running);
}

} // namespace spar
