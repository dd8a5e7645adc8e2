// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Where the processes of a job meet, and how they recognize each other.
#pragma once

#include <spar/core/compiler.hpp>

#include <string>

namespace spar::inline v0_1 {

/// Where the processes of a job meet, and how they recognize each other. `rendezvous::from_environment` takes what has
/// its default value from the environment.
struct rendezvous_options {
  /// The address of rank 0: a name, or an address of IPv4 or IPv6.
  std::string address{};
  /// The TCP port on which rank 0 listens.
  int port = 0;
  /// The identity of the job, at most 256 bytes. A process of another job is refused.
  std::string job{};
  /// The shared secret, by which the processes and the server prove to each other that they belong together; empty:
  /// none. Needs OpenSSL's libcrypto at run time. The secret keeps strangers out; nothing is encrypted.
  std::string secret{};
  /// The network interface on which rank 0 listens, and from which the others connect, such as `eth0`; empty: any.
  std::string network_interface{};
  /// Seconds after which a process no longer waits for the others.
  double deadline = 300;
};

} // namespace spar::inline v0_1
