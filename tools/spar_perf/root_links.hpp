// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The links below a tree's root.
#pragma once

#include <spar/topology/tree.hpp>

#include <cstddef>
#include <vector>

namespace spar::perf {

/// Maps each rank to the link between a tree's root and the child of the root above the rank.
class root_links {
 public:
  explicit root_links(const spar::tree& topology)
      : behind_(static_cast<std::size_t>(topology.ranks())), count_(topology.nodes()[0].children.size()) {
    for (std::size_t link = 0; link < count_; ++link) {
      for (const spar::rank_t r : topology.leaves_of(topology.nodes()[topology.nodes()[0].children[link]])) {
        behind_[static_cast<std::size_t>(r)] = link;
      }
    }
  }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  [[nodiscard]] std::size_t behind(spar::rank_t rank) const noexcept { return behind_[static_cast<std::size_t>(rank)]; }

 private:
  std::vector<std::size_t> behind_;
  std::size_t count_;
};

} // namespace spar::perf
