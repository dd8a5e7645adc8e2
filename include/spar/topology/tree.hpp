// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The network as a tree of any depth and any degrees, with ranks as its leaves (FlexReduce, section III).
#pragma once

#include <spar/core/error.hpp>
#include <spar/core/network_tree.hpp>
#include <spar/runtime/messages/message.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace spar {

/// A link of a tree, the same in both directions.
struct tree_link {
  double bandwidth = 1e9; ///< bytes per second, in each direction
  double latency = 1e-6;  ///< seconds
  friend bool operator==(const tree_link&, const tree_link&) = default;
};

/// A node from which a `tree` is built: a leaf, which is a rank, or a branch, which is a host or a switch with a link
/// to each child. Example:
///
///     const tree_node host_a{.links = {.bandwidth = 1e10}, .children = {tree_node{0}, tree_node{1}}};
struct tree_node {
  rank_t rank = -1;     ///< rank of a leaf; -1 for a branch
  tree_link links = {}; ///< links of a branch to its children
  std::vector<tree_node> children = {};
  std::optional<tree_link> link = {}; ///< link to the parent, if it differs from the parent's `links`
};

/// A tree whose leaves are exactly the ranks 0 to P - 1. A plain value.
class tree {
 public:
  /// A node of the tree; nodes are numbered so that a parent comes before its children.
  struct node {
    std::size_t parent = 0;     ///< the root is its own parent
    std::size_t depth = 0;      ///< number of links to the root
    tree_link up = {};          ///< the link to the parent
    std::size_t first_leaf = 0; ///< the leaves of the node are leaves()[first_leaf, last_leaf)
    std::size_t last_leaf = 0;
    std::vector<std::size_t> children = {}; ///< empty for a leaf
    friend bool operator==(const node&, const node&) = default;
  };

  /// Throws `invalid_argument` if a branch has no children, the bandwidth of a link is not positive or a latency is
  /// negative, the root has a link to a parent, or the leaves are not exactly the ranks 0 to P - 1. The message names
  /// the node, as in "root.children[1]".
  explicit tree(const tree_node& root) {
    if (root.link) raise<invalid_argument>({"root of the tree has a link to a parent; expected none"});
    add(root, 0, {}, 0, "root");
    check_ranks();
  }
  /// Throws `invalid_argument` if `depth`, in links from the root, is more than any network has: the recursion would
  /// overflow the stack.
  static void check_depth(std::size_t depth) {
    constexpr std::size_t deepest = 100;
    if (depth > deepest) raise<invalid_argument>({"a tree is deeper than ", deepest, " links"});
  }
  /// The tree with all ranks at one switch.
  static tree flat(rank_t ranks, const tree_link& links = {}) {
    tree_node root{.links = links};
    for (rank_t r = 0; r < ranks; ++r) root.children.push_back({.rank = r});
    return tree(root);
  }

  [[nodiscard]] rank_t ranks() const noexcept { return static_cast<rank_t>(leaves_.size()); }
  [[nodiscard]] const std::vector<node>& nodes() const noexcept { return nodes_; }
  /// The ranks from left to right.
  [[nodiscard]] std::span<const rank_t> leaves() const noexcept { return leaves_; }
  [[nodiscard]] std::span<const rank_t> leaves_of(const node& of) const noexcept {
    return leaves().subspan(of.first_leaf, of.last_leaf - of.first_leaf);
  }
  /// L, the number of branches on the longest path from the root down.
  [[nodiscard]] std::size_t levels() const noexcept { return levels_; }
  /// The branches of a level: level 0 has the deepest ones, level levels() - 1 the root (section III-B: reverse level
  /// order).
  [[nodiscard]] std::vector<std::size_t> branches(std::size_t level) const {
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (!nodes_[i].children.empty() && nodes_[i].depth + level + 1 == levels_) found.push_back(i);
    }
    return found;
  }

  /// Whether all branches of a level have the same number of children, and all ranks the same depth.
  [[nodiscard]] bool is_symmetric() const {
    std::vector<std::size_t> degrees(levels_);
    return std::all_of(nodes_.begin(), nodes_.end(), [&](const node& n) {
      if (n.children.empty()) return n.depth == levels_;
      if (degrees[n.depth] == 0) degrees[n.depth] = n.children.size();
      return degrees[n.depth] == n.children.size();
    });
  }

  /// The links of the tree, in the form that the simulator takes.
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

  /// An indented picture of the tree, one node per line.
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
            {place, " of the tree is rank ", what.rank, " and has children; expected one or the other"});
      }
      leaves_.push_back(what.rank);
    } else {
      if (what.rank != -1) raise<invalid_argument>({place, " of the tree has the invalid rank ", what.rank});
      if (what.children.empty()) raise<invalid_argument>({place, " of the tree has neither a rank nor children"});
      check_link(what.links, place, " of the tree has links");
      levels_ = std::max(levels_, depth + 1);
      for (std::size_t c = 0; c < what.children.size(); ++c) {
        const tree_node& child = what.children[c];
        const std::string child_place = sentence(place, ".children[", c, "]");
        if (child.link) check_link(*child.link, child_place, " of the tree has a link");
        const std::size_t added = add(child, self, child.link.value_or(what.links), depth + 1, child_place);
        nodes_[self].children.push_back(added); // indexed again, as `add` may have moved the nodes
      }
    }
    nodes_[self].last_leaf = leaves_.size();
    return self;
  }

  static void check_link(const tree_link& link, const std::string& place, const char* has) {
    constexpr double infinite = std::numeric_limits<double>::infinity();
    if (!(link.bandwidth > 0 && link.bandwidth < infinite)) {
      raise<invalid_argument>(
          {place, has, " of ", link.bandwidth, " bytes per second; expected a finite bandwidth above 0"});
    }
    if (!(link.latency >= 0 && link.latency < infinite)) {
      raise<invalid_argument>(
          {place, has, " with a latency of ", link.latency, " s; expected a finite latency of at least 0 s"});
    }
  }

  void check_ranks() const {
    std::vector<bool> seen(leaves_.size());
    for (const rank_t r : leaves_) {
      if (r >= ranks()) {
        raise<invalid_argument>(
            {"a tree with ", ranks(), " leaves has rank ", r, "; expected the ranks from 0 to ", ranks() - 1});
      }
      if (seen[static_cast<std::size_t>(r)]) raise<invalid_argument>({"a tree has rank ", r, " twice"});
      seen[static_cast<std::size_t>(r)] = true;
    }
  }

  std::vector<node> nodes_;
  std::vector<rank_t> leaves_;
  std::size_t levels_ = 0;
};

} // namespace spar
