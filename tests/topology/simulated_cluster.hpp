// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Clusters whose hosts have narrow links, and the simulated time of a dense allreduce over the links of a tree.
#pragma once

#include "support/ranks.hpp"

#include <spar/sim.hpp>
#include <spar/topology/tree.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace spar_test {

/// Hosts with the given numbers of ranks, with 1e10 B/s inside hosts and 1e8 B/s between hosts.
inline spar::tree cluster(const std::vector<int>& ranks_of_each, double latency_between, double latency_inside) {
  spar::tree_node root{.links = {1e8, latency_between}};
  spar::rank_t next = 0;
  for (const int ranks : ranks_of_each) {
    spar::tree_node host{.links = {1e10, latency_inside}};
    for (int r = 0; r < ranks; ++r) host.children.push_back({.rank = next++});
    root.children.push_back(host);
  }
  return spar::tree(root);
}

/// One rank's call of a dense allreduce in place.
template <class Algorithm>
struct reduce_with {
  Algorithm algorithm;
  std::vector<std::vector<float>>* x;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const std::span<float> mine((*x)[static_cast<std::size_t>(net.rank())]);
    auto pending = spar::start_allreduce(net, mine, algorithm);
    co_await std::move(pending);
  }
};

/// The virtual time of a dense allreduce of n floats.
template <class Algorithm>
double simulated(const spar::tree& topology, std::size_t n, const Algorithm& algorithm) {
  std::vector<std::vector<float>> x(static_cast<std::size_t>(topology.ranks()), std::vector<float>(n));
  spar::simulator_options options;
  options.tree = topology.network();
  return run_sim(topology.ranks(), reduce_with<Algorithm>{algorithm, &x}, options);
}

} // namespace spar_test
