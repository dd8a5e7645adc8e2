// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Expected times of dense allreduces over a tree (FlexReduce, section IV).
#pragma once

#include <spar/topology/tree.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace spar {

/// Reduce-scatter around a ring of `d` members that sends so many bytes over links of this bandwidth (equation 2).
inline double seconds_ring_reduce_scatter(double bytes, double d, double latency, double bandwidth) noexcept {
  return (d - 1) * (latency + bytes / (d * bandwidth));
}

/// FlexReduce of `bytes` (equation 6): twice the sum over the levels of the slowest link's ring, where a link below the
/// level carries only the portions of the ranks below it. A message's latency is that of its way, to the deepest rank
/// and back. On a symmetric tree this is BlueConnect's time (equation 10).
inline double seconds_flexreduce(const tree& topology, double bytes) {
  const auto& nodes = topology.nodes();
  std::vector<double> down(nodes.size()); // latency to the deepest rank
  for (std::size_t i = nodes.size(); i-- > 1;) {
    down[nodes[i].parent] = std::max(down[nodes[i].parent], nodes[i].up.latency + down[i]);
  }
  std::vector<double> slowest(topology.levels());
  for (std::size_t x = 0; x < nodes.size(); ++x) {
    if (nodes[x].children.empty()) continue;
    const double bandwidth = nodes[nodes[x].children[0]].up.bandwidth;
    double portion = bytes; // of the ranks below x together, which is what its links carry
    for (std::size_t y = x;; y = nodes[y].parent) {
      const auto degree = static_cast<double>(nodes[y].children.size());
      double& level = slowest[topology.levels() - 1 - nodes[y].depth];
      level = std::max(level, seconds_ring_reduce_scatter(portion, degree, 2 * down[y], bandwidth));
      if (y == nodes[y].parent) break;
      portion /= degree;
    }
  }
  double seconds = 0;
  for (const double s : slowest) seconds += 2 * s;
  return seconds;
}

/// The ring over the ranks from left to right: each link carries what one rank sends, at the pace of the slowest.
inline double seconds_ring(const tree& topology, double bytes) {
  double seconds = 0;
  const auto ranks = static_cast<double>(topology.ranks());
  double latency = 0, bandwidth = 0;
  for (const auto& n : topology.nodes()) {
    if (&n == topology.nodes().data()) continue;
    bandwidth = bandwidth > 0 ? std::min(bandwidth, n.up.bandwidth) : n.up.bandwidth;
    if (n.children.empty()) {
      double way = 0;
      for (const auto* at = &n; at->depth > 0; at = &topology.nodes()[at->parent]) way += at->up.latency;
      latency = std::max(latency, way);
    }
  }
  if (ranks > 1) seconds = 2 * seconds_ring_reduce_scatter(bytes, ranks, 2 * latency, bandwidth);
  return seconds;
}

} // namespace spar
