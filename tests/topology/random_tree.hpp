// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Random trees for the tests of plans, with uneven degrees and depths.
#pragma once

#include <spar/topology/tree.hpp>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <random>
#include <vector>

namespace spar_test {

namespace detail {

inline spar::tree_node random_branch(std::mt19937_64& random, std::size_t leaves, int depth,
                                     std::vector<spar::rank_t>& unused, bool slow_links) {
  spar::tree_node branch;
  branch.links.bandwidth = static_cast<double>(1 + random() % 100) * 1e7;
  while (leaves > 0) {
    const std::size_t some = depth > 1 && random() % 3 != 0 ? 1 + random() % leaves : 1;
    if (some == 1 && random() % 4 != 0) {
      branch.children.push_back({.rank = unused.back()});
      unused.pop_back();
    } else if (depth > 1) {
      branch.children.push_back(random_branch(random, some, depth - 1, unused, slow_links));
    } else {
      continue;
    }
    leaves -= some;
  }
  if (slow_links) {
    branch.children[random() % branch.children.size()].link = {.bandwidth = branch.links.bandwidth / 10};
  }
  return branch;
}

} // namespace detail

/// Up to `depth` levels, some branches with one child, and ranks in random order. With `slow_links` one child of each
/// branch has a link with a tenth of the others' bandwidth.
inline spar::tree random_tree(std::mt19937_64& random, std::size_t leaves, int depth, bool slow_links = false) {
  std::vector<spar::rank_t> unused(leaves);
  std::iota(unused.begin(), unused.end(), 0);
  std::shuffle(unused.begin(), unused.end(), random);
  return spar::tree(detail::random_branch(random, leaves, depth, unused, slow_links));
}

/// Hosts with the given numbers of ranks at one switch, ranks from left to right.
inline spar::tree hosts(const std::vector<int>& ranks_of_each) {
  spar::tree_node root;
  spar::rank_t next = 0;
  for (const int ranks : ranks_of_each) {
    spar::tree_node host;
    for (int r = 0; r < ranks; ++r) host.children.push_back({.rank = next++});
    root.children.push_back(host);
  }
  return spar::tree(root);
}

} // namespace spar_test
