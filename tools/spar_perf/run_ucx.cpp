// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The measurement over UCX.
#include "calibrate.hpp"
#include "measurement.hpp"
#include "run.hpp"
#include "topology.hpp"

#include <spar/runtime/progress_thread.hpp>
#include <spar/ucx.hpp>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace spar::perf {

namespace {

/// Reads `--topology` on every rank. Throws `usage_error` on all ranks if the file is unusable on any rank.
spar::tree agreed_topology(const options& o, const spar::rendezvous& ranks, const std::vector<spar::rank_t>& hosts) {
  std::optional<spar::tree> found;
  std::string why;
  try {
    found = topology_of(o, hosts);
  } catch (const usage_error& e) {
    why = e.what();
  }
  std::string elsewhere;
  for (const std::string& text : ranks.exchange(why)) {
    if (!text.empty()) elsewhere = "--topology: the file is unusable on another rank";
  }
  if (!why.empty() || !elsewhere.empty()) throw usage_error(!why.empty() ? why : elsewhere);
  return *found;
}

} // namespace

std::vector<row> run_ucx(const options& o, const own_systems& own, const spar::rendezvous& ranks) {
  const int size = static_cast<int>(ranks.size());
  if (o.ranks > 0 && o.ranks != size)
    throw usage_error("--ranks is " + std::to_string(o.ranks) + ", but the launcher has started " +
                      std::to_string(size));
  for (const double density : o.densities) workload_of(o, density, size);
  std::vector<row> rows;
  spar::ucx rank(ranks);
  const spar::tree topology = agreed_topology(o, ranks, spar::hosts_of(rank));
  const root_links links(topology);
  measured_net net(rank, links);
  net.serve_by([&rank] { return std::make_shared<spar::progress_thread<spar::ucx>>(rank); });
  net.set_network(o.model);
  for (const double density : o.densities) {
    const auto systems = measurement_of({o, density, size, topology, own});
    auto records = systems->on_rank(net);
    if (!take_rows(*systems, std::move(records), rows)) break;
  }
  return rows;
}

spar::network_model calibrate_ucx(const options& o, const spar::rendezvous& ranks) {
  spar::ucx rank(ranks);
  spar::any_transport net(rank);
  return calibrate(net, o);
}

} // namespace spar::perf
