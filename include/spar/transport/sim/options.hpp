// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What can be said about the machine that the simulator simulates.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/network_tree.hpp>

#include <cstdint>
#include <memory_resource>

namespace spar {

/// The network and the order of events. A message of L bytes leaves through its host's outgoing link, which it occupies
/// for overhead + L / bandwidth; `latency` later it comes in through the receiver's incoming link, occupied equally
/// long. Links are shared by the ranks of a host, first come first served; between ranks of one host a message takes
/// latency + L / bandwidth and no link. L is the payload: a header belongs to the latency.
///
/// With a `tree`, a message goes up and down its links: it occupies each for overhead + L / its bandwidth, and its
/// first byte comes to the next one after the link's latency.
struct simulator_options {
  double latency = 1e-6;    ///< alpha, seconds
  double bandwidth = 1e9;   ///< 1 / beta, bytes per second of each link and direction
  double overhead = 0;      ///< seconds for which each message occupies a link besides its bytes
  double compute = 0;       ///< gamma, seconds per entry of local work
  int cores = 0;            ///< that do the local work of all ranks, in the order of events; 0: each rank has its own
  double jitter = 0;        ///< each message is late by a random time up to this
  std::uint64_t seed = 0;   ///< other than 0: events of the same time happen in a random order
  bool synchronous = false; ///< a send ends only when its message has been received
  rank_t ranks_per_host = 1;
  network_tree tree = {}; ///< if it has nodes, in the place of latency, bandwidth and ranks_per_host
  bool record = false;    ///< keep a trace of the messages
  std::pmr::memory_resource* memory = std::pmr::new_delete_resource();
};

} // namespace spar
