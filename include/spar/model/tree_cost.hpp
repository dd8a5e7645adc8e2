// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The model's expected times of dense allreduces over a tree (FlexReduce, section IV).
#pragma once

#include <spar/topology/folded_ranks.hpp>
#include <spar/topology/ownership.hpp>
#include <spar/topology/tree.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

namespace spar::inline v0_1 {

/// Expected seconds of a reduce-scatter of `bytes` bytes around a ring of `d` members (FlexReduce, equation 2), whose
/// links have the latency `latency` (seconds) and the bandwidth `bandwidth` (bytes per second).
inline double seconds_ring_reduce_scatter(double bytes, double d, double latency, double bandwidth) noexcept {
  return (d - 1) * (latency + bytes / (d * bandwidth));
}

/// Expected seconds of FlexReduce's reduce-scatter of `bytes` bytes on each level of `topology`, the deepest level
/// first (FlexReduce, equations 4 and 5). A level takes as long as the slowest ring reduce-scatter over any link below
/// a branch of the level. On that level, a link transfers only the values that the ranks below the link hold when the
/// level begins. Each message has the latency of the longest path: from the most distant rank below the branch up to
/// the branch and down again.
inline std::vector<double> seconds_of_levels(const tree& topology, double bytes) {
  const auto& nodes = topology.nodes();
  std::vector<double> down(nodes.size()); // seconds of latency from each node to the most distant rank below
  for (std::size_t i = nodes.size(); i-- > 1;) {
    down[nodes[i].parent] = std::max(down[nodes[i].parent], nodes[i].up.latency + down[i]);
  }
  std::vector<double> slowest(topology.levels());
  for (std::size_t x = 0; x < nodes.size(); ++x) {
    if (nodes[x].children.empty()) continue;
    double bandwidth = nodes[nodes[x].children[0]].up.bandwidth;
    for (const std::size_t c : nodes[x].children) bandwidth = std::min(bandwidth, nodes[c].up.bandwidth);
    double portion = bytes; // bytes that the ranks below one child of x reduce on the level of y
    for (std::size_t y = x;; y = nodes[y].parent) {
      const auto degree = static_cast<double>(nodes[y].children.size());
      double& level = slowest[topology.levels() - 1 - nodes[y].depth];
      level = std::max(level, seconds_ring_reduce_scatter(portion, degree, 2 * down[y], bandwidth));
      if (y == nodes[y].parent) break;
      portion /= degree;
    }
  }
  return slowest;
}

/// Expected seconds of an allreduce of `bytes` bytes over `topology` by FlexReduce (equation 6): the reduce-scatter of
/// each level, and the allgather, which takes as long. On a symmetric tree, the result is the time of BlueConnect
/// (FlexReduce, equation 10).
inline double seconds_flexreduce(const tree& topology, double bytes) {
  double seconds = 0;
  for (const double s : seconds_of_levels(topology, bytes)) seconds += 2 * s;
  return seconds;
}

/// For each level of `topology`, the deepest first, the largest number of calls with the same root, which is the rank
/// that owns the result of a call (FlexReduce, equation 12). The formula assumes that n is large compared with the
/// number of ranks. On a level, the number of calls of a root is 1 plus a term for each child of the branch that
/// contains the root. The term is a quotient, rounded up: the portion that the root owns after the level, divided by
/// the smallest portion that a rank below the child holds before the level.
inline std::vector<std::size_t> most_calls_of_levels(const tree& topology) {
  std::vector<double> portion(topology.leaves().size(), 1.0); // portion of the n values that each rank holds
  std::vector<std::size_t> most(topology.levels());
  for (std::size_t level = 0; level < most.size(); ++level) {
    for (const std::size_t b : topology.branches(level)) {
      const tree::node& branch = topology.nodes()[b];
      const auto degree = static_cast<double>(branch.children.size());
      double largest = 0;
      for (const rank_t v : topology.leaves_of(branch))
        largest = std::max(largest, portion[static_cast<std::size_t>(v)]);
      std::size_t calls = 1;
      for (const std::size_t c : branch.children) {
        double smallest = 1;
        for (const rank_t u : topology.leaves_of(topology.nodes()[c])) {
          smallest = std::min(smallest, portion[static_cast<std::size_t>(u)]);
        }
        calls += static_cast<std::size_t>(
            std::ceil(largest / degree / smallest - 1e-9)); // 1e-9 absorbs rounding errors of the portions
      }
      most[level] = std::max(most[level], calls);
      for (const rank_t v : topology.leaves_of(branch)) portion[static_cast<std::size_t>(v)] /= degree;
    }
  }
  return most;
}

/// Expected seconds of the ring allreduce of `bytes` bytes over the ranks of `topology` from left to right. Each link
/// transfers in each direction what one rank sends, so the slowest link determines the time.
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

/// Computes how long messages that are sent at the same time take to cross the links of a tree.
class tree_traffic {
 public:
  /// Begins without messages on the tree `topology`, which must outlive this object.
  explicit tree_traffic(const tree& topology)
      : tree_(&topology), up_(topology.nodes().size()), down_(up_), at_(topology.leaves().size()) {
    for (std::size_t i = 0; i < up_.size(); ++i) {
      const tree::node& n = topology.nodes()[i];
      if (n.children.empty()) at_[static_cast<std::size_t>(topology.leaves()[n.first_leaf])] = i;
    }
  }

  /// Adds a message of `bytes` bytes from the rank `from` to the rank `to`: adds its bytes to each link of its path.
  void add(rank_t from, rank_t to, double bytes) {
    const auto& nodes = tree_->nodes();
    std::size_t a = at_[static_cast<std::size_t>(from)], b = at_[static_cast<std::size_t>(to)];
    double latency = 0;
    while (a != b) {
      const bool climbs = nodes[a].depth >= nodes[b].depth;
      std::size_t& end = climbs ? a : b;
      (climbs ? up_ : down_)[end] += bytes;
      latency += nodes[end].up.latency;
      end = nodes[end].parent;
    }
    latency_ = std::max(latency_, latency);
  }

  /// Seconds until all messages that were added since the last call of `seconds()` have arrived: the latency of the
  /// longest path, plus the time in which the busiest link transfers its bytes.
  double seconds() {
    double busiest = 0;
    for (std::size_t i = 1; i < up_.size(); ++i) {
      busiest = std::max(busiest, std::max(up_[i], down_[i]) / tree_->nodes()[i].up.bandwidth);
      up_[i] = down_[i] = 0;
    }
    return busiest + std::exchange(latency_, 0);
  }

 private:
  const tree* tree_;
  std::vector<double> up_, down_; // bytes on the link between each node and its parent, by direction
  std::vector<std::size_t> at_;   // index of the leaf of each rank
  double latency_ = 0;
};

/// Expected seconds of `two_shot` for `bytes` bytes, which are `encoded` bytes if the codec encodes them, over the
/// links of `topology`: the ranks of each host send unencoded parts to their owners on the host, the owners of a part
/// exchange encoded blocks, and both again with the sums. For a vector of many pieces, this is a bound: the pieces of
/// one exchange are sent while those of another are.
inline double seconds_two_shot(const tree& topology, double bytes, double encoded) {
  tree_traffic links(topology);
  const std::vector<rank_t> hosts = topology.hosts();
  const rank_t parts = smallest_host(hosts);
  const auto send = [&](rank_t from, rank_t to, double message) {
    const auto at = [&](rank_t position) { return topology.leaves()[static_cast<std::size_t>(position)]; };
    if (from != to) links.add(at(from), at(to), message);
  };
  for (std::size_t h = 0; h + 1 < hosts.size(); ++h) {
    for (rank_t from = hosts[h]; from < hosts[h + 1]; ++from)
      for (rank_t part = 0; part < parts; ++part) send(from, hosts[h] + part, bytes / parts);
  }
  double seconds = links.seconds();
  const auto blocks = static_cast<double>(hosts.size() - 1) * parts;
  for (std::size_t h = 0; h + 1 < hosts.size(); ++h) {
    for (std::size_t to = 0; to + 1 < hosts.size(); ++to)
      for (rank_t part = 0; part < parts; ++part) send(hosts[h] + part, hosts[to] + part, encoded / blocks);
  }
  seconds += links.seconds();
  return 2 * seconds;
}

/// Expected seconds of Rabenseifner's algorithm for `bytes` bytes over the links of `topology`. The algorithm ignores
/// the tree: each rank's partners depend only on the numbers of the ranks.
inline double seconds_rabenseifner(const tree& topology, double bytes) {
  tree_traffic links(topology);
  const rank_t ranks = topology.ranks();
  const folded_ranks folded(0, ranks);
  double seconds = 0;
  for (rank_t r = 0; r < 2 * folded.extra(); r += 2) links.add(r, r + 1, bytes);
  seconds += links.seconds(); // the factor 2 below adds the time to send the results back
  for (rank_t distance = folded.active_ranks() / 2; distance > 0; distance /= 2) {
    const double part = bytes * distance / folded.active_ranks();
    for (rank_t i = 0; i < folded.active_ranks(); ++i) {
      links.add(folded.rank_of(i), folded.rank_of(i ^ distance), part);
    }
    seconds += links.seconds(); // the factor 2 below adds the time of the allgather
  }
  return 2 * seconds;
}

} // namespace spar::inline v0_1
