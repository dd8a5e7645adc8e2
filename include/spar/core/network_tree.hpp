// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The description of a tree-shaped network: the nodes, their links and the places of the ranks.
#pragma once

#include <spar/core/compiler.hpp>

#include <cstddef>
#include <vector>

namespace spar::inline v0_1 {

/// A tree-shaped network. The node `nodes[0]` is the root. Every other node has a link to its parent, which precedes
/// the node in `nodes`. Ranks are placed only at nodes without children.
struct network_tree {
  /// A host, a switch or a processor, with the link to its parent.
  struct node {
    std::size_t parent = 0; ///< index of the parent in `nodes`
    double bandwidth = 1e9; ///< bytes per second, in each direction, of the link to the parent
    double latency = 0;     ///< seconds of latency of the link to the parent
  };
  std::vector<node> nodes;     ///< all nodes; a parent comes before its children
  std::vector<std::size_t> at; ///< `at[r]` is the index in `nodes` of the node at which rank r is placed

  /// Returns the child of the node `ancestor` whose subtree contains the node `from`, or `ancestor` itself if `from` is
  /// not below `ancestor`.
  [[nodiscard]] std::size_t toward(std::size_t from, std::size_t ancestor) const noexcept {
    while (nodes[from].parent != ancestor && nodes[from].parent != from) from = nodes[from].parent;
    return nodes[from].parent == ancestor && from != ancestor ? from : ancestor;
  }
};

} // namespace spar::inline v0_1
