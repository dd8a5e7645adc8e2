// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How transports write headers as bytes. The envelope of a message consists of its header and, if the padded payload is
// at most 4096 bytes long, its payload.
#pragma once

#include <spar/runtime/messages/message.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace spar::inline v0_1 {

/// The size in bytes of the longest envelope.
inline constexpr std::size_t envelope_bytes = sizeof(header) + enclosed_bytes;

/// Whether the payload of the message with the header `h` is part of its envelope.
inline bool is_enclosed(const header& h) noexcept { return padded_bytes(h.lengths, max_pieces) <= enclosed_bytes; }

/// A header of 16 instead of 64 bytes, for messages with one piece of at most 4096 bytes of dense values and without a
/// payload checksum. A message with a payload of 8 bytes thus has 24 bytes instead of 80 (with padding) and is faster,
/// because 24 bytes share a cache line with MPI's own header. The receiver computes the number of values and the size
/// of the piece from the length of the message. A short header does not contain the dimension, but ranks compare the
/// digest, which covers the dimension. The fields, from the lowest bit, with their sizes in bits, are: magic number
/// (8), element type (4), index type (4), the part of the sequence number that is not in the tag (16), CRC-32C of all
/// other fields (32), digest (64).
class short_header {
 public:
  static constexpr std::uint32_t expected_magic = 0xB3; ///< the magic number
  /// The magic numbers of versions 1 and 2 of the wire format.
  static constexpr std::array<std::uint32_t, 2> earlier_magic{0x5D, 0xB2};

  /// Whether this object was read from a short header. In a full header of either byte order, the byte that a short
  /// header uses for its magic number has another value.
  [[nodiscard]] bool is_short() const noexcept { return (fields_ & 0xFF) == expected_magic; }
  /// The version of the wire format if this object was read from a short header of an earlier version; 0 otherwise.
  [[nodiscard]] int earlier_version() const noexcept {
    return (fields_ & 0xFF) == earlier_magic[0] ? 1 : (fields_ & 0xFF) == earlier_magic[1] ? 2 : 0;
  }

  /// Whether a short header can represent the full header `h`.
  [[nodiscard]] static bool suffices(const header& h) noexcept {
    return h.format == wire_format::dense && h.lengths[1] == 0 && h.lengths[2] == 0 &&
           h.lengths[0] == h.count * size_of(h.element) && h.lengths[0] > 0 && h.lengths[0] <= enclosed_bytes &&
           h.checksum == 0; // otherwise `h` contains a payload checksum, for which a short header has no field
  }

  short_header() = default; ///< a short header that is not valid
  /// The short header that represents `h`, for which `suffices(h)` holds.
  explicit short_header(const header& h) noexcept
      : fields_(expected_magic | std::uint32_t{static_cast<std::uint8_t>(h.element)} << 8 |
                std::uint32_t{static_cast<std::uint8_t>(h.index)} << 12 | std::uint32_t{h.sequence} << 16),
        digest_(h.digest) {
    checksum_ = expected_checksum();
  }

  /// Writes to `h` the full header that this short header represents; `payload` is the number of bytes of the payload.
  /// Throws `corrupt_message` if this header is damaged or does not match `payload`.
  void expand(header& h, std::size_t payload) const {
    const auto element = static_cast<element_code>(fields_ >> 8 & 0xF);
    const std::size_t size = size_of(element);
    if (checksum_ != expected_checksum()) {
      raise<corrupt_message>({"a message is damaged: the checksum of its short header is ", checksum_, ", expected ",
                              expected_checksum()});
    }
    // Rejects payloads of more than `enclosed_bytes` bytes: the receiver would wait for their pieces in further
    // messages.
    if (size == 0 || payload % size != 0 || payload > enclosed_bytes) {
      raise<corrupt_message>({"a message with a short header has ", payload, " bytes of payload and values of ", size,
                              " bytes; expected a whole number of values in at most ", enclosed_bytes, " bytes"});
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

/// Writes the header `h` of a message to `to`, which must have room for 64 bytes: a short header if this suffices, else
/// the full header with its checksum. Returns the number of bytes written.
inline std::size_t write_header(const header& h, std::byte* to) noexcept {
  if (short_header::suffices(h)) {
    const short_header brief(h);
    std::memcpy(to, &brief, sizeof(brief));
    return sizeof(brief);
  }
  header full = h;
  full.checksum = full.expected_checksum();
  std::memcpy(to, &full, sizeof(full));
  return sizeof(full);
}

/// Reads a header that `write_header` wrote at the beginning of `bytes`, and stores it in `h`. `total` is the number of
/// bytes of the header and the payload together, from which a short header derives its sizes. Returns the number of
/// bytes of the header. Throws `corrupt_message` if the header is damaged or malformed.
inline std::size_t read_header(std::span<const std::byte> bytes, header& h, std::size_t total) {
  short_header brief;
  if (bytes.size() >= sizeof(brief)) std::memcpy(&brief, bytes.data(), sizeof(brief));
  if (brief.is_short()) {
    brief.expand(h, total - sizeof(brief));
    return sizeof(brief);
  }
  if (brief.earlier_version() > 0) {
    raise<corrupt_message>({"a message has version ", brief.earlier_version(),
                            " of the wire format, but this rank has version ", header::current_version});
  }
  if (bytes.size() < sizeof(header)) {
    raise<corrupt_message>(
        {"a message has ", bytes.size(), " bytes; expected at least a header of ", sizeof(header), " bytes"});
  }
  std::memcpy(&h, bytes.data(), sizeof(header));
  h.validate();
  return sizeof(header);
}

/// Writes the envelope of the message `out` to `to`: the header with its checksum and, if the payload is enclosed,
/// the pieces. `to` must have room for `envelope_bytes` bytes. Returns the number of bytes written.
inline std::size_t write_envelope(const message_pieces& out, std::byte* to) noexcept {
  const std::size_t size = write_header(out.head, to);
  if (size < sizeof(header)) { // a short header, whose only piece needs no padding
    std::memcpy(to + size, out.pieces[0].data(), out.pieces[0].size());
    return size + out.pieces[0].size();
  }
  if (!is_enclosed(out.head)) return size;
  pack(out.pieces, to + size);
  return size + padded_bytes(out.head.lengths, max_pieces);
}

/// Reads an envelope that `write_envelope` wrote. Stores the header in `h`. Returns the pieces of the payload as views
/// of `bytes`, or empty views if the pieces are not enclosed. `bytes` must be aligned to 16 bytes. Throws
/// `corrupt_message` if the envelope is damaged or malformed.
inline payload_views read_envelope(std::span<const std::byte> bytes, header& h) {
  payload_views pieces{};
  const std::size_t size = read_header(bytes, h, bytes.size());
  if (size < sizeof(header)) {
    pieces[0] = bytes.subspan(size);
    return pieces;
  }
  const std::size_t payload = is_enclosed(h) ? padded_bytes(h.lengths, max_pieces) : 0;
  if (bytes.size() != sizeof(header) + payload) {
    raise<corrupt_message>(
        {"a message has ", bytes.size(), " bytes, but its header requires ", sizeof(header) + payload, " bytes"});
  }
  for (std::size_t i = 0; payload > 0 && i < max_pieces; ++i) {
    pieces[i] = bytes.subspan(sizeof(header) + padded_bytes(h.lengths, i), h.lengths[i]);
  }
  return pieces;
}

} // namespace spar::inline v0_1
