// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A plan of FlexReduce for any number of values. The plan consists of cells, whose bounds are chosen later from the
// positions of the entries.
#pragma once

#include <spar/topology/flex_plan.hpp>
#include <spar/topology/tree.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace spar::inline v0_1 {

/// FlexReduce's plan for a tree, made of cells instead of values. A cell is a range of indices between two adjacent
/// boundaries of the plan. The tree alone determines which rank owns which cell. The bounds of the cells are chosen
/// later from the positions of the entries, so that each rank gets the portion of the entries that the tree prescribes.
/// A `tree_cells` object is built once and is equal on all ranks.
class tree_cells {
 public:
  /// Makes the plan of cells for the tree `topology`.
  explicit tree_cells(const tree& topology) : tree_cells(flex_plan(topology, std::uint64_t{1} << 30)) {}

  /// The plan whose values are cells: a range [a, b) of the plan contains the cells a to b - 1.
  [[nodiscard]] const flex_plan& plan() const noexcept { return plan_; }
  /// The bounds of the cells as portions of all entries, in the form of `portioned_ownership::portions`.
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
  [[nodiscard]] std::vector<std::vector<flex_plan::call_spec>> in_cells(const flex_plan& fine) const {
    const auto cell = [&](std::uint64_t at) {
      return static_cast<std::uint64_t>(std::lower_bound(portions_.begin(), portions_.end(), at) - portions_.begin());
    };
    std::vector<std::vector<flex_plan::call_spec>> levels(fine.levels());
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

} // namespace spar::inline v0_1
