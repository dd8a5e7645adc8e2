// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The network as a tree whose branches may have any number of children, and whose leaves are the ranks (FlexReduce,
// section III).
#pragma once

#include <spar/core/check_number.hpp>
#include <spar/core/error.hpp>
#include <spar/core/network_tree.hpp>
#include <spar/runtime/messages/message.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace spar::inline v0_1 {

/// A link of a tree. Both directions have the same bandwidth and latency.
struct tree_link {
  double bandwidth = 1e9; ///< bytes per second, in each direction
  double latency = 1e-6;  ///< seconds
  friend bool operator==(const tree_link&, const tree_link&) = default;
};

/// A node of the description from which a `tree` is built. A node is either a leaf, which is a rank, or a branch, which
/// is a host or a switch with a link to each child. Example:
///
///     const tree_node host_a{.links = {.bandwidth = 1e10}, .children = {tree_node{0}, tree_node{1}}};
struct tree_node {
  rank_t rank = -1;                     ///< rank of a leaf; -1 for a branch
  tree_link links = {};                 ///< links from a branch to its children, unless a child has its own `link`
  std::vector<tree_node> children = {}; ///< the children of a branch; empty for a leaf
  std::optional<tree_link> link = {};   ///< link from this node to its parent, if different from the parent's `links`
};

/// A network as a tree whose leaves are exactly the ranks 0 to P - 1. A tree has no pointers and can be copied.
class tree {
 public:
  /// A node of the tree. Nodes refer to each other by their index in `nodes()`; a parent comes before its children.
  struct node {
    std::size_t parent = 0;                 ///< index of the parent; the root is its own parent
    std::size_t depth = 0;                  ///< number of links between the node and the root
    tree_link up = {};                      ///< the link to the parent
    std::size_t first_leaf = 0;             ///< the ranks below the node are leaves()[first_leaf, last_leaf)
    std::size_t last_leaf = 0;              ///< the end of the ranks below the node in `leaves()`
    std::vector<std::size_t> children = {}; ///< indices of the children; empty for a leaf
    friend bool operator==(const node&, const node&) = default;
  };

  /// Builds the tree with the root `root`. Throws `invalid_argument` in these cases:
  /// - A node has both a rank and children, or neither; a rank is below -1; the root has a link to a parent; a
  ///   bandwidth is not positive and finite; or a latency is negative or not finite. The message names the node, as in
  ///   "root.children[1]".
  /// - There are more than 100 links between a node and the root.
  /// - The leaves are not exactly the ranks from 0 to P - 1.
  explicit tree(const tree_node& root) {
    if (root.link) raise<invalid_argument>({"root of the tree has a link to a parent; expected none"});
    add(root, 0, {}, 0, "root");
    check_ranks();
  }
  /// Throws `invalid_argument` if `depth`, the number of links between a node and the root, is above 100. Without the
  /// limit, a malformed tree could overflow the stack, because the functions that build trees are recursive.
  static void check_depth(std::size_t depth) {
    constexpr std::size_t deepest = 100;
    if (depth > deepest)
      raise<invalid_argument>(
          {"a tree has a node at a depth of ", depth, " links; expected at most ", deepest, " links"});
  }
  /// Returns the tree in which one switch connects `ranks` ranks, each by a link with the bandwidth and latency of
  /// `links`.
  static tree flat(rank_t ranks, const tree_link& links = {}) {
    tree_node root{.links = links};
    for (rank_t r = 0; r < ranks; ++r) root.children.push_back({.rank = r});
    return tree(root);
  }

  /// The number of ranks.
  [[nodiscard]] rank_t ranks() const noexcept { return static_cast<rank_t>(leaves_.size()); }
  /// All nodes; the root comes first, and a parent before its children.
  [[nodiscard]] const std::vector<node>& nodes() const noexcept { return nodes_; }
  /// The ranks at the leaves, from left to right.
  [[nodiscard]] std::span<const rank_t> leaves() const noexcept { return leaves_; }
  /// The ranks below the node `of`, from left to right.
  [[nodiscard]] std::span<const rank_t> leaves_of(const node& of) const noexcept {
    return leaves().subspan(of.first_leaf, of.last_leaf - of.first_leaf);
  }
  /// The position from left to right of the first rank of each host, and then the number of ranks. A host is a branch
  /// below the root whose children are ranks; a rank that is a child of the root or of another branch is a host alone.
  [[nodiscard]] std::vector<rank_t> hosts() const {
    std::vector<rank_t> first;
    for (const node& leaf : nodes_) {
      if (!leaf.children.empty()) continue;
      const node& host = nodes_[leaf.parent];
      bool alone = leaf.parent == 0;
      for (std::size_t i = 0; !alone && i < host.children.size(); ++i)
        alone = !nodes_[host.children[i]].children.empty();
      if (alone || leaf.first_leaf == host.first_leaf) first.push_back(static_cast<rank_t>(leaf.first_leaf));
    }
    first.push_back(ranks());
    return first;
  }
  /// The number of levels L: the number of branches on the longest path from the root to a leaf.
  [[nodiscard]] std::size_t levels() const noexcept { return levels_; }
  /// The indices in `nodes()` of the branches of a level. Level 0 contains the deepest branches, and the last level
  /// contains only the root (FlexReduce, section III-B: reverse level order).
  [[nodiscard]] std::vector<std::size_t> branches(std::size_t level) const {
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (!nodes_[i].children.empty() && nodes_[i].depth + level + 1 == levels_) found.push_back(i);
    }
    return found;
  }

  /// Whether the tree is symmetric: all branches of a level have the same number of children, and all ranks have the
  /// same depth.
  [[nodiscard]] bool is_symmetric() const {
    std::vector<std::size_t> degrees(levels_);
    return std::all_of(nodes_.begin(), nodes_.end(), [&](const node& n) {
      if (n.children.empty()) return n.depth == levels_;
      if (degrees[n.depth] == 0) degrees[n.depth] = n.children.size();
      return degrees[n.depth] == n.children.size();
    });
  }

  /// The links of the tree as a `network_tree`, the form that the simulator takes.
  [[nodiscard]] network_tree network() const {
    network_tree links;
    links.at.resize(leaves_.size());
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      const node& n = nodes_[i];
      links.nodes.push_back({n.parent, n.up.bandwidth, n.up.latency});
      if (n.children.empty()) links.at[static_cast<std::size_t>(leaves_[n.first_leaf])] = i;
    }
    return links;
  }

  friend bool operator==(const tree&, const tree&) = default;

  /// The tree as indented, human-readable text, one node per line.
  [[nodiscard]] std::string picture() const {
    std::string text;
    for (const node& n : nodes_) {
      text.append(2 * n.depth, ' ');
      text += n.children.empty() ? sentence("rank ", leaves_[n.first_leaf])
                                 : sentence(n.depth == 0 ? "root" : "branch", ", ", n.children.size(), " children");
      if (n.depth > 0) text += sentence(", ", n.up.bandwidth, " B/s, ", n.up.latency, " s");
      text += '\n';
    }
    return text;
  }

 private:
  std::size_t add(const tree_node& what, std::size_t parent, const tree_link& up, std::size_t depth,
                  const std::string& place) {
    check_depth(depth);
    const std::size_t self = nodes_.size();
    nodes_.push_back({.parent = parent, .depth = depth, .up = up, .first_leaf = leaves_.size()});
    if (what.rank >= 0) {
      if (!what.children.empty()) {
        raise<invalid_argument>(
            {place, " of the tree is rank ", what.rank, " and has children; expected either a rank or children"});
      }
      leaves_.push_back(what.rank);
    } else {
      if (what.rank != -1)
        raise<invalid_argument>({place, " of the tree has the invalid rank ", what.rank,
                                 "; expected a rank of at least 0, or -1 for a branch"});
      if (what.children.empty())
        raise<invalid_argument>({place, " of the tree has neither a rank nor children; expected one of the two"});
      check_link(what.links, place, " of the tree has links");
      levels_ = std::max(levels_, depth + 1);
      for (std::size_t c = 0; c < what.children.size(); ++c) {
        const tree_node& child = what.children[c];
        const std::string child_place = sentence(place, ".children[", c, "]");
        if (child.link) check_link(*child.link, child_place, " of the tree has a link");
        const std::size_t added = add(child, self, child.link.value_or(what.links), depth + 1, child_place);
        nodes_[self].children.push_back(added); // looks `self` up again, as `add` may have reallocated `nodes_`
      }
    }
    nodes_[self].last_leaf = leaves_.size();
    return self;
  }

  static void check_link(const tree_link& link, const std::string& place, const char* has) {
    detail::check_number(link.bandwidth, detail::valid::bandwidth, place, has, " whose bandwidth");
    detail::check_number(link.latency, detail::valid::duration, place, has, " whose latency");
  }

  void check_ranks() const {
    std::vector<bool> seen(leaves_.size());
    for (const rank_t r : leaves_) {
      if (r >= ranks()) {
        raise<invalid_argument>(
            {"a tree with ", ranks(), " leaves has rank ", r, "; expected the ranks from 0 to ", ranks() - 1});
      }
      if (seen[static_cast<std::size_t>(r)])
        raise<invalid_argument>({"a tree has rank ", r, " twice; expected each rank from 0 to ", ranks() - 1, " once"});
      seen[static_cast<std::size_t>(r)] = true;
    }
  }

  std::vector<node> nodes_;
  std::vector<rank_t> leaves_;
  std::size_t levels_ = 0;
};

} // namespace spar::inline v0_1
