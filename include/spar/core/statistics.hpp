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
  std::uint64_t plain_bytes_sent = 0; ///< what bytes_sent would be, had nothing been encoded
  std::uint64_t compressions = 0;     ///< pieces that were encoded
  std::uint64_t decompressions = 0;   ///< pieces that were decoded
  double codec_seconds = 0;           ///< of `seconds` for both
  double seconds = 0;                 ///< from start to completion; virtual in the simulator

  /// How many times more bytes would have been sent without encoding; 1 where nothing was sent.
  [[nodiscard]] double compression_ratio() const noexcept {
    return bytes_sent == 0 ? 1 : static_cast<double>(plain_bytes_sent) / static_cast<double>(bytes_sent);
  }

  statistics& operator+=(const statistics& other) noexcept {
    messages_sent += other.messages_sent;
    messages_received += other.messages_received;
    bytes_sent += other.bytes_sent;
    bytes_received += other.bytes_received;
    header_bytes_sent += other.header_bytes_sent;
    header_bytes_received += other.header_bytes_received;
    plain_bytes_sent += other.plain_bytes_sent;
    compressions += other.compressions;
    decompressions += other.decompressions;
    codec_seconds += other.codec_seconds;
    seconds += other.seconds;
    return *this;
  }
};

} // namespace spar
