// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The tree of a cluster: hosts with their ranks, connected by one switch.
#pragma once

#include <spar/runtime/messages/message.hpp>
#include <spar/topology/tree.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace spar {

/// Returns the tree in which ranks with the same number in `host_of`, one number per rank, share a host. `inside` are
/// the links within a host, `between` the links of the hosts to the switch. Hosts are in the order of their first
/// ranks; a single host is the root. Throws `invalid_argument` if `host_of` is empty.
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

} // namespace spar
