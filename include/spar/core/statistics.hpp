// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a collective call cost on this rank.
#pragma once

#include <cstdint>

namespace spar {

/// Messages, bytes and seconds of one call, or of all calls, on one rank. Bytes are payload; headers stand apart, each
/// counted in full although that of a few dense values is shortened on its way.
struct statistics {
  std::uint64_t messages_sent = 0;
  std::uint64_t messages_received = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t header_bytes_sent = 0;
  std::uint64_t header_bytes_received = 0;
  double seconds = 0; ///< from start to completion; virtual in the simulator

  statistics& operator+=(const statistics& other) noexcept {
    messages_sent += other.messages_sent;
    messages_received += other.messages_received;
    bytes_sent += other.bytes_sent;
    bytes_received += other.bytes_received;
    header_bytes_sent += other.header_bytes_sent;
    header_bytes_received += other.header_bytes_received;
    seconds += other.seconds;
    return *this;
  }
};

} // namespace spar
