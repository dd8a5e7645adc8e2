// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Builds the tree of a cluster in which one switch connects all hosts.
#pragma once

#include <spar/runtime/messages/message.hpp>
#include <spar/topology/tree.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace spar::inline v0_1 {

/// Returns the tree of a cluster with one switch. `host_of` has one host number per rank; ranks with equal host numbers
/// share a host. `inside` describes the links between a host and its ranks; `between` describes the links between the
/// switch and the hosts. Hosts are ordered by their lowest rank. If all ranks share one host, the host is the root of
/// the tree. Throws `invalid_argument` if `host_of` is empty.
inline tree tree_of_hosts(std::span<const rank_t> host_of, const tree_link& inside = {1e10, 1e-6},
                          const tree_link& between = {1e9, 1e-5}) {
  std::vector<rank_t> seen;
  tree_node root{.links = between};
  for (std::size_t r = 0; r < host_of.size(); ++r) {
    const auto host = static_cast<std::size_t>(std::find(seen.begin(), seen.end(), host_of[r]) - seen.begin());
    if (host == seen.size()) {
      seen.push_back(host_of[r]);
      root.children.push_back({.links = inside});
    }
    root.children[host].children.push_back({.rank = static_cast<rank_t>(r)});
  }
  return tree(root.children.size() == 1 ? root.children[0] : root);
}

} // namespace spar::inline v0_1
