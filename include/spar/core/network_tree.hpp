// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A tree-shaped network, as plain numbers.
#pragma once

#include <cstddef>
#include <vector>

namespace spar {

/// The first node is the root. Each other node has a link to its parent, which precedes the node in `nodes`. Ranks are
/// placed at nodes without children.
struct network_tree {
  struct node {
    std::size_t parent = 0;
    double bandwidth = 1e9; ///< bytes per second in each direction
    double latency = 0;     ///< seconds
  };
  std::vector<node> nodes;
  std::vector<std::size_t> at; ///< node of each rank

  /// The child of `ancestor` whose subtree contains the node `from`; `ancestor` if `from` is not below `ancestor`.
  [[nodiscard]] std::size_t toward(std::size_t from, std::size_t ancestor) const noexcept {
    while (nodes[from].parent != ancestor && nodes[from].parent != from) from = nodes[from].parent;
    return nodes[from].parent == ancestor && from != ancestor ? from : ancestor;
  }
};

} // namespace spar
