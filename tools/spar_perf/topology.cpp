// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reads trees from files.
#include "topology.hpp"

#include "units.hpp"

#include <spar/topology/hosts.hpp>
#include <spar/topology/tree_json.hpp>

#include <string>

namespace spar::perf {

spar::tree topology_of(const options& o, std::span<const spar::rank_t> hosts) {
  if (o.topology == "auto") return spar::tree_of_hosts(hosts);
  try {
    spar::tree found = spar::read_tree(o.topology);
    if (static_cast<std::size_t>(found.ranks()) == hosts.size()) return found;
    throw usage_error("--topology " + o.topology + " has " + std::to_string(found.ranks()) +
                      " ranks, but the run has " + std::to_string(hosts.size()));
  } catch (const spar::invalid_argument& e) {
    throw usage_error(std::string("--topology: ") + e.what());
  }
}

} // namespace spar::perf
