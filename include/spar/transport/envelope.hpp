// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The first bytes of a message on a wire: its header and, where they fit, its pieces.
#pragma once

#include <spar/core/endpoint.hpp>
#include <spar/core/message.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace spar {

/// Payload, the pieces padded to 16 bytes each, that travels together with its header.
inline constexpr std::size_t enclosed_bytes = 4096;
inline constexpr std::size_t envelope_bytes = sizeof(header) + enclosed_bytes;

inline bool is_enclosed(const header& h) noexcept { return padded_bytes(h.lengths, max_pieces) <= enclosed_bytes; }

/// What the header of a few dense values shrinks to: some 24 bytes travel faster than 80, as they share a cache line
/// with what MPI puts before them. The tag says the rest. Bits from the lowest: magic number 8, element 8, of the
/// sequence number what the tag lacks 12, index 4, algorithm 16, operation 16; dimension 32, CRC-32C of all that 32.
class short_header {
 public:
  static constexpr std::uint64_t expected_magic = 0x5D;

  /// Whether the bytes that were read are one: a full header has another byte there, in either byte order.
  [[nodiscard]] bool is_short() const noexcept { return (low_ & 0xFF) == expected_magic; }

  /// Whether a short header says all that `h` says.
  [[nodiscard]] static bool suffices(const header& h) noexcept {
    return h.format == wire_format::dense && h.lengths[1] == 0 && h.lengths[2] == 0 && h.dimension <= UINT32_MAX &&
           h.lengths[0] == h.count * size_of(h.element) && h.lengths[0] > 0 && h.lengths[0] <= enclosed_bytes &&
           h.checksum == 0; // else the channel has filled it in, with that of the payload
  }

  short_header() = default;
  explicit short_header(const header& h) noexcept
      : low_(expected_magic | std::uint64_t{static_cast<std::uint8_t>(h.element)} << 8 |
             std::uint64_t{h.sequence / in_tag} << 16 | std::uint64_t{static_cast<std::uint8_t>(h.index)} << 28 |
             std::uint64_t{h.algorithm} << 32 | std::uint64_t{h.operation} << 48),
        high_(h.dimension) {
    high_ |= std::uint64_t{checksum()} << 32;
  }

  /// The full header of a message with that tag and so many bytes of payload; throws `corrupt_message`.
  void expand(header& h, tag_t tag, std::size_t payload) const {
    const auto element = static_cast<element_code>(low_ >> 8 & 0xFF);
    const std::size_t size = size_of(element);
    if (high_ >> 32 != checksum()) throw corrupt_message("the checksum of a message's header is wrong");
    // More than is ever enclosed would be taken for announced, and waited for.
    if (size == 0 || payload % size != 0 || payload > enclosed_bytes) {
      raise<corrupt_message>(
          {"a message brings ", payload, " bytes behind a short header for values of ", size, " bytes"});
    }
    h.format = wire_format::dense;
    h.lane = lane_of(tag);
    h.sequence = static_cast<std::uint32_t>(low_ >> 16 & 0xFFF) * in_tag + sequence_of(tag);
    h.algorithm = static_cast<std::uint16_t>(low_ >> 32);
    h.operation = static_cast<std::uint16_t>(low_ >> 48);
    h.dimension = high_ & UINT32_MAX;
    h.count = payload / size;
    h.lengths = {payload, 0, 0};
    h.element = element;
    h.index = static_cast<element_code>(low_ >> 28 & 0xF);
  }

 private:
  static constexpr std::uint32_t in_tag = max_in_flight; // sequence numbers are in the tag modulo this
  static_assert(header::sequences / in_tag == 1U << 12);

  [[nodiscard]] std::uint32_t checksum() const noexcept { return crc32c(low_, static_cast<std::uint32_t>(high_)); }

  std::uint64_t low_ = 0;
  std::uint64_t high_ = 0;
};
static_assert(sizeof(short_header) == 16 && std::is_trivially_copyable_v<short_header>);

/// Writes the header of `out` with its checksum, and its pieces where they are enclosed, to `envelope_bytes` bytes at
/// `to`; the number of bytes written.
inline std::size_t write_envelope(const message_pieces& out, std::byte* to) noexcept {
  if (short_header::suffices(out.head)) {
    const short_header brief(out.head);
    std::memcpy(to, &brief, sizeof(brief));
    std::memcpy(to + sizeof(brief), out.pieces[0].data(), out.pieces[0].size());
    return sizeof(brief) + out.pieces[0].size();
  }
  header h = out.head;
  h.checksum = h.expected_checksum();
  std::memcpy(to, &h, sizeof(h));
  if (!is_enclosed(h)) return sizeof(h);
  for (std::size_t i = 0; i < max_pieces; ++i) {
    const auto& piece = out.pieces[i];
    if (!piece.empty()) std::memcpy(to + sizeof(h) + padded_bytes(h.lengths, i), piece.data(), piece.size());
  }
  return sizeof(h) + padded_bytes(h.lengths, max_pieces);
}

/// Reads what `write_envelope` wrote, the header to `h`; the pieces are views of `bytes`, which begin at a multiple of
/// 16, and empty where they are not enclosed. Throws `corrupt_message`.
inline payload_views read_envelope(std::span<const std::byte> bytes, tag_t tag, header& h) {
  payload_views pieces{};
  short_header brief;
  if (bytes.size() >= sizeof(brief)) std::memcpy(&brief, bytes.data(), sizeof(brief));
  if (brief.is_short()) {
    pieces[0] = bytes.subspan(sizeof(brief));
    brief.expand(h, tag, pieces[0].size());
    return pieces;
  }
  if (bytes.size() < sizeof(header)) {
    raise<corrupt_message>({"a message of ", bytes.size(), " bytes is too short for its header"});
  }
  std::memcpy(&h, bytes.data(), sizeof(header));
  h.validate();
  const std::size_t payload = is_enclosed(h) ? padded_bytes(h.lengths, max_pieces) : 0;
  if (bytes.size() != sizeof(header) + payload) {
    raise<corrupt_message>({"a message has ", bytes.size(), " bytes; its header gives ", sizeof(header) + payload});
  }
  for (std::size_t i = 0; payload > 0 && i < max_pieces; ++i) {
    pieces[i] = bytes.subspan(sizeof(header) + padded_bytes(h.lengths, i), h.lengths[i]);
  }
  return pieces;
}

} // namespace spar
