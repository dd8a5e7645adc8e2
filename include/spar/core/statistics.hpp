// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The statistics of collective calls on one rank.
#pragma once

#include <spar/core/compiler.hpp>

#include <cstdint>

namespace spar::inline v0_1 {

/// Messages, bytes and seconds of one call, or of all calls, on one rank. `bytes_sent` and `bytes_received` count the
/// bytes of payloads. `header_bytes_sent` and `header_bytes_received` count 64 bytes for each header, although some
/// messages with short dense payloads are sent with 16-byte headers over MPI.
struct statistics {
  std::uint64_t messages_sent = 0;         ///< messages sent
  std::uint64_t messages_received = 0;     ///< messages received
  std::uint64_t bytes_sent = 0;            ///< bytes of the payloads sent
  std::uint64_t bytes_received = 0;        ///< bytes of the payloads received
  std::uint64_t header_bytes_sent = 0;     ///< 64 bytes for each message sent
  std::uint64_t header_bytes_received = 0; ///< 64 bytes for each message received
  std::uint64_t plain_bytes_sent = 0;      ///< payload bytes that would be sent without encoding
  std::uint64_t compressions = 0;          ///< pieces encoded
  std::uint64_t decompressions = 0;        ///< pieces decoded
  std::uint64_t coded_indices = 0;         ///< indices that `storage::coded`, or a similar codec, has encoded
  std::uint64_t coded_index_bytes = 0;     ///< bytes of these encoded indices
  std::uint64_t coded_values = 0;          ///< values that such a codec has encoded
  std::uint64_t coded_value_bytes = 0;     ///< bytes of these encoded values
  double codec_seconds = 0;                ///< the part of `seconds` spent encoding and decoding
  double seconds = 0;                      ///< from the start of a call to its end; virtual time in the simulator

  /// The payload bytes that would be sent without encoding, divided by the payload bytes sent; 1 if nothing was sent.
  [[nodiscard]] double compression_ratio() const noexcept {
    return bytes_sent == 0 ? 1 : static_cast<double>(plain_bytes_sent) / static_cast<double>(bytes_sent);
  }

  /// Adds all counts and times of `other`.
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
    coded_indices += other.coded_indices;
    coded_index_bytes += other.coded_index_bytes;
    coded_values += other.coded_values;
    coded_value_bytes += other.coded_value_bytes;
    codec_seconds += other.codec_seconds;
    seconds += other.seconds;
    return *this;
  }
};

} // namespace spar::inline v0_1
