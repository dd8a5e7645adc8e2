// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The measurement in the simulator.
#include "measurement.hpp"
#include "run.hpp"
#include "topology.hpp"

namespace spar::perf {

std::vector<row> run_sim(const options& o, const own_systems& own) {
  const int ranks = o.ranks > 0 ? o.ranks : 2;
  std::vector<row> rows;
  std::vector<spar::rank_t> hosts;
  for (int r = 0; r < ranks; ++r) hosts.push_back(r / o.ranks_per_host);
  const spar::tree topology = topology_of(o, hosts);
  for (const double density : o.densities) workload_of(o, density, ranks); // throws before any measurement
  for (const double density : o.densities) {
    const auto systems = measurement_of({o, density, ranks, topology, own});
    if (!take_rows(*systems, systems->simulated(), rows)) break;
  }
  return rows;
}

} // namespace spar::perf
