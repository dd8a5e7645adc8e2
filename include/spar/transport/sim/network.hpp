// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The links of a simulated network, each of which transmits messages in the order in which they reach the link (see
// simulator_options), and the random delays of messages.
#pragma once

#include <spar/core/check_number.hpp>
#include <spar/core/error.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/core/util/splitmix.hpp>
#include <spar/transport/sim/options.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace spar::inline v0_1::detail {

/// Computes the times at which a message leaves each link of its path, reaches the next link, and arrives at its
/// receiver.
class sim_network {
 public:
  /// The position of a message on its path.
  struct way {
    bool begun = false;
    bool down = false;    // whether the next link lies after the lowest common ancestor of sender and receiver
    std::size_t link = 0; // the tree node whose link to its parent comes next
    double through = 0;   // the time at which the last byte has passed all links so far
  };
  /// The times, in virtual seconds, at which a message passes a link. `left`: the message has left the link. `next`:
  /// the first byte reaches the next link or, if `arrives` is true, the last byte arrives at the receiver.
  struct passage {
    double left;
    double next;
    bool arrives;
  };

  sim_network(const simulator_options& options, rank_t ranks) : options_(&options) {
    if (!tree().nodes.empty()) {
      outgoing_.assign(tree().nodes.size(), 0);
      incoming_ = outgoing_;
      return;
    }
    outgoing_.assign(static_cast<std::size_t>((ranks - 1) / options.ranks_per_host + 1), 0);
    incoming_ = outgoing_;
    const auto pairs = static_cast<std::size_t>(ranks) * static_cast<std::size_t>(options.ranks_per_host);
    if (options.ranks_per_host > 1) last_between_.assign(pairs, 0);
  }

  /// Returns `options`. Throws `invalid_argument` if `size` ranks cannot be simulated with these options.
  static const simulator_options& checked(const simulator_options& options, rank_t size) {
    check_number(size, {1, valid::greatest, "at least one rank"}, "the size of a simulator");
    check_number(options.latency, valid::duration, "latency of the simulator");
    check_number(options.overhead, valid::duration, "overhead of the simulator");
    check_number(options.compute, valid::duration, "compute of the simulator");
    check_number(options.jitter, valid::duration, "jitter of the simulator");
    check_number(options.bandwidth, valid::bandwidth, "bandwidth of the simulator");
    check_number(options.ranks_per_host, {1, valid::greatest, "at least 1"}, "ranks_per_host of the simulator");
    check_number(options.cores, {0, valid::greatest, "0 or more"}, "cores of the simulator");
    check_tree(options.tree, size);
    return options;
  }
  /// Throws `invalid_argument` if `tree` is malformed or its number of ranks is not `ranks`. Accepts a tree without
  /// nodes, which means that the network is not a tree.
  static void check_tree(const network_tree& tree, rank_t ranks) {
    if (tree.nodes.empty()) return;
    if (tree.at.size() != static_cast<std::size_t>(ranks)) {
      raise<invalid_argument>({"a simulator has ", ranks,
                               " ranks, but the number of ranks in simulator_options::tree is ", tree.at.size()});
    }
    std::vector<bool> inner(tree.nodes.size());
    for (std::size_t i = 0; i < tree.nodes.size(); ++i) {
      const network_tree::node& n = tree.nodes[i];
      if (i > 0 ? n.parent >= i : n.parent != 0)
        raise<invalid_argument>(
            {"invalid network tree: the parent of the root, node 0, must be 0, and the parent of any "
             "other node must have a smaller number than the node; but node ",
             i, " has parent ", n.parent});
      check_number(n.bandwidth, valid::bandwidth, "the bandwidth of node ", i, " of the network tree");
      check_number(n.latency, valid::duration, "the latency of node ", i, " of the network tree");
      if (i > 0) inner[n.parent] = true;
    }
    for (const std::size_t at : tree.at) {
      if (at >= tree.nodes.size() || inner[at]) {
        raise<invalid_argument>({"the network tree places a rank at node ", at,
                                 ", which has children or does not exist; expected a node without children and with a "
                                 "number less than ",
                                 tree.nodes.size()});
      }
    }
  }

  /// Upper bounds, for any two ranks, of a message's latency in seconds and its transfer time in seconds per byte.
  [[nodiscard]] std::pair<double, double> message() const {
    if (tree().nodes.empty()) return {options_->latency, 1 / options_->bandwidth};
    double alpha = 0, beta = 0;
    std::vector<double> to_root(tree().nodes.size());
    for (std::size_t i = 1; i < to_root.size(); ++i) {
      to_root[i] = to_root[tree().nodes[i].parent] + tree().nodes[i].latency;
      alpha = std::max(alpha, 2 * to_root[i]);
      beta = std::max(beta, 1 / tree().nodes[i].bandwidth);
    }
    return {alpha, beta};
  }

  /// Computes how a message of `bytes` bytes passes the next link of its path, which the message reaches at the time
  /// `now`. Advances `on`, the position of the message on the path.
  passage pass(double now, way& on, rank_t source, rank_t destination, std::uint64_t bytes) {
    if (!tree().nodes.empty()) return climb(now, on, source, destination, bytes);
    const double occupied = options_->overhead + static_cast<double>(bytes) / options_->bandwidth;
    if (host(source) == host(destination)) {
      const double left = now + occupied;
      double& last =
          last_between_[static_cast<std::size_t>(source) * static_cast<std::size_t>(options_->ranks_per_host) +
                        static_cast<std::size_t>(destination % options_->ranks_per_host)];
      last = std::max(left + options_->latency, last); // keeps messages in order; no link does so within a host
      return {left, last, true};
    }
    double& free = on.begun ? incoming_[host(destination)] : outgoing_[host(source)];
    const double begun = std::max(now, free);
    free = begun + occupied;
    if (on.begun) return {free, free, true};
    on.begun = true;
    return {free, begun + options_->latency, false};
  }

  /// The seconds that the first byte of a message takes from `source` to `destination` if all links are idle.
  [[nodiscard]] double latency(rank_t source, rank_t destination) const noexcept {
    if (tree().nodes.empty()) return options_->latency;
    const std::size_t to = at(destination);
    double seconds = 0;
    std::size_t node = at(source);
    for (; node != to && tree().toward(to, node) == node; node = tree().nodes[node].parent) {
      seconds += tree().nodes[node].latency;
    }
    for (std::size_t down = to; down != node; down = tree().nodes[down].parent) seconds += tree().nodes[down].latency;
    return seconds;
  }

 private:
  /// Computes how a message passes the next link of its path in a tree. The path leads up to the lowest common ancestor
  /// of sender and receiver, then down to the receiver.
  passage climb(double now, way& on, rank_t source, rank_t destination, std::uint64_t bytes) {
    if (!on.begun) on = {.begun = true, .link = at(source)};
    const network_tree::node& node = tree().nodes[on.link];
    double& free = (on.down ? incoming_ : outgoing_)[on.link];
    const double begun = std::max(now, free);
    const double left = free = begun + options_->overhead + static_cast<double>(bytes) / node.bandwidth;
    on.through = std::max(on.through, free) + node.latency;
    if (on.down && on.link == at(destination)) return {left, on.through, true};
    const std::size_t here = on.down ? on.link : node.parent;
    const std::size_t below = tree().toward(at(destination), here);
    on.down = below != here;
    on.link = below;
    return {left, begun + node.latency, false};
  }

  [[nodiscard]] const network_tree& tree() const noexcept { return options_->tree; }
  [[nodiscard]] std::size_t at(rank_t rank) const noexcept { return tree().at[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::size_t host(rank_t rank) const noexcept {
    return static_cast<std::size_t>(rank / options_->ranks_per_host);
  }

  const simulator_options* options_;
  std::vector<double> outgoing_;     // the time at which each host's, or tree node's, outgoing link becomes free
  std::vector<double> incoming_;     // the time at which each host's, or tree node's, incoming link becomes free
  std::vector<double> last_between_; // the time of the latest arrival from each rank at each rank of the same host
};

/// Delays the arrival of each simulated message by a random time below a maximum. Messages for which `delayed`
/// is called with the same `key` still arrive in order.
class sim_jitter {
 public:
  /// `most` is the largest delay, in virtual seconds; `seed` determines all delays.
  sim_jitter(double most, std::uint64_t seed) : most_(most), seed_(seed) {
    if (most > 0) last_arrival_.assign(65536, 0);
  }

  /// Returns the time `arrival` plus a random delay. Messages that must stay in order have the same `key`; each message
  /// has a different `number`, which determines the delay.
  [[nodiscard]] double delayed(double arrival, std::uint64_t key, std::uint64_t number) {
    if (most_ <= 0) return arrival;
    const std::uint64_t random = splitmix(seed_ ^ splitmix(number));
    arrival += most_ * static_cast<double>(random >> 11) * 0x1p-53;
    // Messages with different keys that share one of the 65536 slots also stay in order, which is harmless.
    double& last = last_arrival_[key % last_arrival_.size()];
    return last = std::max(arrival, last);
  }

 private:
  double most_;
  std::uint64_t seed_;
  std::vector<double> last_arrival_; // the latest time of arrival for each slot, that is, each key modulo 65536
};

} // namespace spar::inline v0_1::detail
