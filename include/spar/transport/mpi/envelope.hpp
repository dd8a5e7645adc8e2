// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The first bytes of a message on a wire: its header and, where they fit, its pieces.
#pragma once

#include <spar/runtime/endpoint.hpp>
#include <spar/runtime/messages/message.hpp>

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
/// with what MPI puts before them. The tag and the length of the message say the rest; the digest, which ranks compare,
/// stands for the dimension. Bits from the lowest: magic number 8, element 4, index 4, of the sequence number what the
/// tag lacks 16; CRC-32C of all the other bits 32; digest 64.
class short_header {
 public:
  static constexpr std::uint32_t expected_magic = 0xB2;
  static constexpr std::uint32_t magic_of_version_1 = 0x5D;

  /// Whether the bytes that were read are one: a full header has another byte there, in either byte order.
  [[nodiscard]] bool is_short() const noexcept { return (fields_ & 0xFF) == expected_magic; }
  /// Whether they are one of the first version of the wire format.
  [[nodiscard]] bool is_old() const noexcept { return (fields_ & 0xFF) == magic_of_version_1; }

  /// Whether a short header says all that `h` says.
  [[nodiscard]] static bool suffices(const header& h) noexcept {
    return h.format == wire_format::dense && h.lengths[1] == 0 && h.lengths[2] == 0 &&
           h.lengths[0] == h.count * size_of(h.element) && h.lengths[0] > 0 && h.lengths[0] <= enclosed_bytes &&
           h.checksum == 0; // else the channel has filled it in, with that of the payload
  }

  short_header() = default;
  explicit short_header(const header& h) noexcept
      : fields_(expected_magic | std::uint32_t{static_cast<std::uint8_t>(h.element)} << 8 |
                std::uint32_t{static_cast<std::uint8_t>(h.index)} << 12 | std::uint32_t{h.sequence} << 16),
        digest_(h.digest) {
    checksum_ = expected_checksum();
  }

  /// The full header of a message with so many bytes of payload; throws `corrupt_message`.
  void expand(header& h, std::size_t payload) const {
    const auto element = static_cast<element_code>(fields_ >> 8 & 0xF);
    const std::size_t size = size_of(element);
    if (checksum_ != expected_checksum()) raise<corrupt_message>({"the checksum of a message's header is wrong"});
    // More than is ever enclosed would be taken for announced, and waited for.
    if (size == 0 || payload % size != 0 || payload > enclosed_bytes) {
      raise<corrupt_message>(
          {"a message brings ", payload, " bytes behind a short header for values of ", size, " bytes"});
    }
    h.format = wire_format::dense;
    h.sequence = static_cast<std::uint16_t>(fields_ >> 16);
    h.digest = digest_;
    h.dimension = header::unknown_dimension;
    h.count = payload / size;
    h.lengths = {payload, 0, 0};
    h.element = element;
    h.index = static_cast<element_code>(fields_ >> 12 & 0xF);
  }

 private:
  [[nodiscard]] std::uint32_t expected_checksum() const noexcept { return crc32c(digest_, fields_); }

  std::uint32_t fields_ = 0;
  std::uint32_t checksum_ = 0;
  std::uint64_t digest_ = 0;
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
inline payload_views read_envelope(std::span<const std::byte> bytes, header& h) {
  payload_views pieces{};
  short_header brief;
  if (bytes.size() >= sizeof(brief)) std::memcpy(&brief, bytes.data(), sizeof(brief));
  if (brief.is_short()) {
    pieces[0] = bytes.subspan(sizeof(brief));
    brief.expand(h, pieces[0].size());
    return pieces;
  }
  if (brief.is_old()) {
    raise<corrupt_message>({"a message has version 1 of the wire format; this is version ", header::current_version});
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
