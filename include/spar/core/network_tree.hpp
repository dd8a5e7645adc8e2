// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The links of a network that is a tree, as plain numbers.
#pragma once

#include <cstddef>
#include <vector>

namespace spar {

/// Each node but the first, the root, has a link to its parent, which comes before it; ranks are at nodes without
/// children.
struct network_tree {
  struct node {
    std::size_t parent = 0;
    double bandwidth = 1e9; ///< bytes a second, each way
    double latency = 0;     ///< seconds
  };
  std::vector<node> nodes;
  std::vector<std::size_t> at; ///< the node of each rank

  /// The child of `ancestor` below which a node is, or `ancestor` where it is not below it.
  [[nodiscard]] std::size_t toward(std::size_t from, std::size_t ancestor) const noexcept {
    while (nodes[from].parent != ancestor && nodes[from].parent != from) from = nodes[from].parent;
    return nodes[from].parent == ancestor && from != ancestor ? from : ancestor;
  }
};

} // namespace spar
