// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Options of the simulator: the network, the cores and the order of events.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/network_tree.hpp>

#include <cstdint>
#include <memory_resource>

namespace spar::inline v0_1 {

/// The simulated machine and the order of events. A message with L bytes of payload occupies the outgoing link of the
/// sender's host for `overhead` + L / `bandwidth` seconds. The first byte of the message reaches the incoming link of
/// the receiver's host `latency` seconds after the transmission begins, and the message occupies the incoming link for
/// as many seconds as the outgoing link. The ranks of a host share the links of the host. A link transmits messages in
/// the order in which the messages reach the link. Between ranks of one host, a message uses no link and takes
/// `latency` + `overhead` + L / `bandwidth` seconds. The latency includes the time for the header of a message.
///
/// With a `tree`, a message travels up and down the links of the tree. On a link with latency T and bandwidth B, the
/// message occupies the link for `overhead` + L / B seconds, and the first byte of the message reaches the next link T
/// seconds after the transmission begins.
struct simulator_options {
  double latency = 1e-6;     ///< alpha, in seconds
  double bandwidth = 1e9;    ///< 1 / beta, in bytes per second for each link and direction
  double overhead = 0;       ///< seconds for which each message occupies a link in addition to the time for its bytes
  double compute = 0;        ///< gamma, in seconds of local work per entry
  int cores = 0;             ///< cores shared by all ranks for local work, assigned in order of events; 0: one per rank
  double jitter = 0;         ///< largest random delay of a message, in seconds
  std::uint64_t seed = 0;    ///< if not 0, events at the same time happen in a random order that depends on `seed`
  bool synchronous = false;  ///< if true, a send ends only when its message has been received
  rank_t ranks_per_host = 1; ///< ranks r with equal r / ranks_per_host are on the same host
  network_tree tree = {};    ///< a tree with nodes replaces the options latency, bandwidth and ranks_per_host
  bool record = false;       ///< whether `simulator::trace` returns all messages
  /// Upstream resource of the memory pool that all ranks share.
  std::pmr::memory_resource* memory = std::pmr::new_delete_resource();
};

} // namespace spar::inline v0_1
