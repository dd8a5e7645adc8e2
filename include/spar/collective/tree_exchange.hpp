// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How entries get to owners and back over a tree: what is equal inside a host is merged before it crosses the narrow
// link, and each entry of the result crosses it once. Beyond FlexReduce, which is for dense values.
#pragma once

#include <spar/collective/flex_execute.hpp>
#include <spar/collective/flex_plan.hpp>
#include <spar/topology/ownership.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace spar {

/// FlexReduce's plan for a tree in cells, which are what lies between two of its boundaries: who owns a cell depends on
/// the tree alone, and which indices are in it on where the entries are, so that each rank's portion of them is what
/// the tree says. Made once, the same on all ranks.
class tree_cells {
 public:
  explicit tree_cells(const tree& topology) : tree_cells(flex_plan(topology, std::uint64_t{1} << 30)) {}

  [[nodiscard]] const flex_plan& plan() const noexcept { return plan_; }
  /// Of all entries together, as `portioned_ownership` has it.
  [[nodiscard]] std::span<const std::uint64_t> portions() const noexcept { return portions_; }

 private:
  explicit tree_cells(const flex_plan& fine)
      : portions_(boundaries_of(fine)), plan_(flex_plan::of_calls(portions_.size() - 1, fine.ranks(), in_cells(fine))) {
  }

  static std::vector<std::uint64_t> boundaries_of(const flex_plan& fine) {
    std::vector<std::uint64_t> all{0, fine.dimension()};
    for (std::size_t level = 0; level < fine.levels(); ++level) {
      for (const auto& c : fine.calls(level)) all.push_back(c.range.begin);
    }
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
  }
  [[nodiscard]] std::vector<std::vector<flex_plan::given_call>> in_cells(const flex_plan& fine) const {
    const auto cell = [&](std::uint64_t at) {
      return static_cast<std::uint64_t>(std::lower_bound(portions_.begin(), portions_.end(), at) - portions_.begin());
    };
    std::vector<std::vector<flex_plan::given_call>> levels(fine.levels());
    for (std::size_t l = 0; l < levels.size(); ++l) {
      for (const auto& c : fine.calls(l)) {
        const auto chain = fine.chain(c);
        levels[l].push_back({{cell(c.range.begin), cell(c.range.end)}, {chain.begin(), chain.end()}});
      }
    }
    return levels;
  }

  std::vector<std::uint64_t> portions_;
  flex_plan plan_;
};

/// The topology of Ok-Topk on a tree. The cells are borrowed.
class on_tree {
 public:
  explicit on_tree(const tree_cells& cells) noexcept : cells_(&cells) {}
  explicit on_tree(tree_cells&&) = delete; // they are borrowed

  void validate_ranks(rank_t ranks) const { cells_->plan().check(cells_->plan().dimension(), ranks); }
  [[nodiscard]] std::uint64_t agreed() const noexcept { return cells_->plan().digest(); }

  [[nodiscard]] portioned_ownership due(std::uint64_t n, rank_t) const noexcept { return {n, cells_->portions()}; }

  /// The sums of the indices in a rank's cells. `residual`, where it is not empty, gets what this rank's encodings
  /// lose, here and in `allgather`.
  template <transport Net, element T, index_type Index, reduction<T> Op, class Storage = storage::coo>
  task<stream<T, Index>> reduce_scatter(channel<Net> net, stream_view<T, Index> mine,
                                        std::span<const std::uint64_t> bounds, Op op, Storage store = {},
                                        std::span<T> residual = {}) const {
    stream<T, Index> block = co_await flex_reduce_scatter(net, &cells_->plan(), mine, op, bounds, store, residual);
    if (block.view().is_dense()) block = to_sparse(block.view(), op, net.memory());
    co_return block;
  }
  /// All ranks' entries, sparse as each rank's are; `shares`: how many there are is the last of them.
  template <transport Net, element T, index_type Index, class Storage = storage::coo>
  task<stream<T, Index>> allgather(channel<Net> net, stream<T, Index> mine, std::span<const std::uint64_t> bounds,
                                   std::span<const std::uint64_t> shares, bool& evened, Storage store = {},
                                   std::span<T> residual = {}) const {
    evened = false;
    const T absent{};
    stream<T, Index> all = co_await flex_allgather(net, &cells_->plan(), mine.view(), absent, bounds, store, residual);
    if (all.view().count() != shares.back()) {
      raise<corrupt_message>({"shares of ", all.view().count(), " entries arrived where ", shares.back(), " are due"});
    }
    co_return all;
  }

 private:
  const tree_cells* cells_;
};

} // namespace spar
