// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The measurement with ranks that are threads of this process.
#include "calibrate.hpp"
#include "measurement.hpp"
#include "run.hpp"
#include "topology.hpp"

#include <spar/runtime/progress_thread.hpp>
#include <spar/system/set_network.hpp>
#include <spar/transport/threads.hpp>

#include <memory>
#include <utility>

namespace spar::perf {

std::vector<row> run_threads(const options& o, const own_systems& own) {
  const int ranks = o.ranks > 0 ? o.ranks : 2;
  std::vector<row> rows;
  const spar::tree topology = topology_of(o, std::vector<spar::rank_t>(static_cast<std::size_t>(ranks)));
  const root_links links(topology);
  for (const double density : o.densities) workload_of(o, density, ranks); // throws before any measurement
  for (const double density : o.densities) {
    const auto systems = measurement_of({o, density, ranks, topology, own});
    std::vector<record> records;
    spar::thread_group group(ranks);
    group.run([&](spar::threads& rank) {
      measured_net net(rank, links);
      net.serve_by([&rank] { return std::make_shared<spar::progress_thread<spar::threads>>(rank); });
      net.set_network(o.model);
      auto its = systems->on_rank(net);
      if (net.rank() == 0) records = std::move(its);
    });
    if (!take_rows(*systems, std::move(records), rows)) break;
  }
  return rows;
}

spar::network_model calibrate_threads(const options& o) {
  spar::network_model network;
  spar::thread_group group(o.ranks > 0 ? o.ranks : 2);
  group.run([&](spar::threads& rank) {
    spar::any_transport net(rank);
    const spar::network_model measured = calibrate(net, o);
    if (net.rank() == 0) network = measured;
  });
  return network;
}

} // namespace spar::perf
