// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Options of the simulator: the network, the cores and the order of events.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/network_tree.hpp>

#include <cstdint>
#include <memory_resource>

namespace spar {

/// The simulated machine and the order of events. A message with L bytes of payload occupies the outgoing link of its
/// sender's host for overhead + L / bandwidth seconds. Its first byte reaches the incoming link of the receiver's host
/// after `latency`, and the message occupies that link equally long. The ranks of a host share its links, first come,
/// first served. Between ranks of one host, a message uses no link and takes latency + overhead + L / bandwidth. The
/// time of a message's header counts as part of the latency.
///
/// With a `tree`, a message goes up and down the links of the tree. It occupies each link for overhead + L / bandwidth
/// of the link, and its first byte reaches the next link after the latency of the link.
struct simulator_options {
  double latency = 1e-6;    ///< alpha, seconds
  double bandwidth = 1e9;   ///< 1 / beta, bytes per second of each link and direction
  double overhead = 0;      ///< seconds that each message occupies a link, in addition to the time of its bytes
  double compute = 0;       ///< gamma, seconds per entry of local work
  int cores = 0;            ///< cores shared by all ranks for local work, in the order of events; 0: one core per rank
  double jitter = 0;        ///< largest random delay of a message, seconds
  std::uint64_t seed = 0;   ///< if not 0, events at the same time happen in a random order
  bool synchronous = false; ///< a send ends only when its message has been received
  rank_t ranks_per_host = 1;
  network_tree tree = {}; ///< if it has nodes, replaces latency, bandwidth and ranks_per_host
  bool record = false;    ///< record all messages, see `simulator::trace`
  std::pmr::memory_resource* memory = std::pmr::new_delete_resource(); ///< upstream of the pool that all ranks share
};

} // namespace spar
