// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Messages: a validated header of 64 bytes and up to three pieces of payload.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/element.hpp>
#include <spar/core/error.hpp>
#include <spar/core/memory/buffer.hpp>
#include <spar/core/memory/pool.hpp>
#include <spar/core/util/crc32c.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace spar {

/// The contents of the pieces of a payload.
enum class wire_format : std::uint8_t {
  sparse = 1,  ///< pieces: indices, values; `count` entries
  dense = 2,   ///< piece 0: `count` values; piece 1, if any, continues them
  encoded = 3, ///< piece 0: a block codec's bytes; piece 1, if any, continues them
  parts = 4,   ///< pieces: number of entries of each part (64 bits each), indices, values
  coded = 5    ///< piece 0: a stream codec's bytes for `count` entries; piece 1, if any: the table of encoded parts
};

inline constexpr std::size_t max_pieces = 3;

/// The names of a call, and whether it is on dense values or on streams.
struct call_form {
  std::string_view algorithm; ///< its name
  std::string_view operation; ///< its name
  bool dense = false;         ///< on dense values, not on streams
  std::uint64_t hash = 0;     ///< of the operation and the form
};

/// What all ranks of a call must agree on; every header carries the digest and the types.
struct signature {
  std::uint64_t digest = 0; ///< of the algorithm with its options, the operation, the form and the dimension
  element_code element{};
  element_code index{};
  std::uint64_t dimension = 0;
  const call_form* form = nullptr; ///< if known, for errors
};

/// Precedes every message, in the sender's byte order; a wrong magic number reveals a foreign message or byte order.
struct header {
  static constexpr std::uint16_t expected_magic = 0x7073; // "sp"
  static constexpr std::uint8_t current_version = 2;

  /// Headers and tags carry the number of a collective modulo this constant. The tag of a message holds the lane and
  /// the number modulo `max_in_flight`; the header holds the rest.
  static constexpr std::uint64_t sequences = max_in_flight << 16;
  static constexpr std::uint16_t sequence_part(std::uint64_t number) noexcept {
    return static_cast<std::uint16_t>(number / max_in_flight);
  }

  /// The dimension in a message with a short header, which carries it only as part of the digest.
  static constexpr std::uint64_t unknown_dimension = UINT64_MAX;

  std::uint16_t magic = expected_magic;
  std::uint8_t version = current_version;
  wire_format format : 4 = {};
  element_code index : 4 = {};
  element_code element = {};
  std::uint8_t order = 0;      ///< number of this message on its lane to this rank, modulo 256, if payloads are checked
  std::uint16_t sequence = 0;  ///< the part of the collective's number that is not in the tag
  std::uint64_t digest = 0;    ///< of what all ranks must agree on: see `signature`
  std::uint64_t dimension = 0; ///< n
  std::uint64_t count = 0;     ///< entries in this message
  std::array<std::uint64_t, max_pieces> lengths{}; ///< bytes of each piece
  std::uint32_t payload_checksum = 0;              ///< of the pieces if the communicator checks payloads, else 0
  std::uint32_t checksum = 0; ///< CRC-32C of the preceding bytes; written when the header leaves its process

  [[nodiscard]] std::uint64_t payload_bytes() const noexcept { return lengths[0] + lengths[1] + lengths[2]; }
  [[nodiscard]] std::uint32_t expected_checksum() const noexcept { return crc32c(this, offsetof(header, checksum)); }

  /// Throws `corrupt_message` if the header is damaged or of another version.
  void validate() const {
    if (magic != expected_magic) raise<corrupt_message>({"a message does not begin with spar's magic number"});
    if (version != current_version) {
      raise<corrupt_message>(
          {"a message has version ", version, " of the wire format; this is version ", current_version});
    }
    if (checksum != expected_checksum()) raise<corrupt_message>({"the checksum of a message's header is wrong"});
    constexpr std::uint64_t limit = std::uint64_t{1} << 58;
    if (lengths[0] > limit || lengths[1] > limit || lengths[2] > limit) {
      raise<corrupt_message>({"a message header has a piece length of more than 2^58 bytes"});
    }
  }
};
static_assert(sizeof(header) == 64 && std::is_trivially_copyable_v<header>);

/// Size of a piece in a block that several pieces share: each piece begins at a multiple of 16 bytes.
constexpr std::size_t padded_bytes(std::size_t bytes) noexcept { return (bytes + 15) / 16 * 16; }
/// Bytes of the first `pieces` pieces in a shared block.
constexpr std::size_t padded_bytes(const std::array<std::uint64_t, max_pieces>& lengths, std::size_t pieces) noexcept {
  std::size_t sum = 0;
  for (std::size_t i = 0; i < pieces; ++i) sum += padded_bytes(lengths[i]);
  return sum;
}

using payload_views = std::array<std::span<const std::byte>, max_pieces>;

/// Bytes of all pieces in a shared block.
inline std::size_t padded_bytes(const payload_views& pieces) noexcept {
  std::size_t sum = 0;
  for (const auto& piece : pieces) sum += padded_bytes(piece.size());
  return sum;
}
/// Copies the pieces into one block of `padded_bytes(pieces)` bytes. Returns the place of each piece in the block.
inline payload_views pack(const payload_views& pieces, std::byte* block) noexcept {
  payload_views packed{};
  for (std::size_t i = 0; i < max_pieces; ++i) {
    if (!pieces[i].empty()) std::memcpy(block, pieces[i].data(), pieces[i].size());
    packed[i] = {block, pieces[i].size()};
    block += padded_bytes(pieces[i].size());
  }
  return packed;
}

/// CRC-32C of the CRC-32C of each piece.
inline std::uint32_t checksum_of(const payload_views& pieces) noexcept {
  std::array<std::uint32_t, max_pieces> each{};
  for (std::size_t i = 0; i < max_pieces; ++i) each[i] = crc32c(pieces[i].data(), pieces[i].size());
  return crc32c(each.data(), sizeof(each));
}

/// What an algorithm sends. The pieces are borrowed until the send ends.
struct payload {
  wire_format format{};
  std::uint64_t count = 0; ///< entries
  payload_views pieces{};
  std::uint64_t plain_bytes = 0; ///< size of the pieces without their codec, if a codec was used, else 0
};

/// What a transport sends: a payload, and the header that the channel of the call has added.
struct message_pieces {
  header head;
  payload_views pieces{};
};

/// Where the payload of an incoming message goes: to given places or, by default, wherever it is cheapest for the
/// transport (memory of the pool or, with in-process ranks, memory of the sender). Must not move while a receive is in
/// flight, because the transport keeps its address. Can receive several messages in turn, with `end_loan` or `release`
/// in between.
class message_buffer {
 public:
  [[gnu::noinline]] explicit message_buffer(pool& memory) noexcept : memory_(&memory) {}
  message_buffer(const message_buffer&) = delete;
  [[gnu::noinline]] ~message_buffer() { end_loan(); }

  /// Piece `i` must have exactly the size of `destination`, and is written there.
  template <class T>
  void place(std::size_t i, std::span<T> destination) {
    places_[i] = std::as_writable_bytes(destination);
    expected_ = placed_ = true;
  }
  /// Expects one piece of exactly `bytes` bytes. The piece must not stay in the memory of the sender, because the
  /// sender may need that memory before this rank has read the piece.
  void expect(std::size_t bytes) noexcept {
    places_ = {};
    places_[0] = {static_cast<std::byte*>(nullptr), bytes};
    expected_ = true;
    placed_ = false;
  }

  [[nodiscard]] const header& head() const noexcept { return head_; }

  /// Throws `corrupt_message` if the payload does not have the checksum in the header.
  void verify_payload() const {
    if (head_.payload_checksum != checksum_of(pieces_)) {
      raise<corrupt_message>({"the checksum of a message's payload is wrong"});
    }
  }

  /// Piece `i` as values of T. Throws `corrupt_message` if the length of the piece is not a multiple of the size of T.
  template <class T>
  [[nodiscard]] std::span<const T> piece(std::size_t i) const {
    check_length(i, sizeof(T));
    return {reinterpret_cast<const T*>(pieces_[i].data()), pieces_[i].size() / sizeof(T)};
  }

  /// Returns the memory of the payload; between in-process ranks, this ends the send of the sender.
  void release() noexcept {
    end_loan();
    storage_.reset();
  }
  /// Returns borrowed memory, but keeps the buffer's own memory for the next message.
  void end_loan() noexcept {
    if (release_ != nullptr) std::exchange(release_, nullptr)(lender_);
    pieces_ = {};
  }

  // For transports.

  /// `kept`: whether the payload must not stay in the memory of the sender. `placed`: whether it must not stay in the
  /// memory of the transport either.
  [[nodiscard]] bool kept() const noexcept { return expected_; }
  [[nodiscard]] bool placed() const noexcept { return placed_; }
  [[nodiscard]] std::span<std::byte> place_of(std::size_t i) const noexcept { return places_[i]; }

  /// The transport writes the header of the message that has arrived here.
  [[nodiscard]] header& arrived() noexcept { return head_; }
  /// Whether every place has the size of its piece. If not, the receive ends without a payload, and `check_fit` throws
  /// once the headers have been compared.
  [[nodiscard]] bool fits() const noexcept {
    return !expected_ || (head_.lengths[0] == places_[0].size() && head_.lengths[1] == places_[1].size() &&
                          head_.lengths[2] == places_[2].size());
  }

  /// Throws `mismatch` if a place has another size than the piece that arrived.
  void check_fit() const {
    if (fits()) return;
    for (std::size_t i = 0; i < max_pieces; ++i) {
      if (head_.lengths[i] != places_[i].size()) {
        raise<mismatch>({"a piece of a message has the wrong number of bytes: got ", head_.lengths[i], ", expected ",
                         places_[i].size()});
      }
    }
  }

  /// Memory for piece `i`, whose length is in the accepted header; pieces without a given place share a block.
  std::span<std::byte> destination(std::size_t i) {
    std::span<std::byte> to = places_[i];
    if (to.data() == nullptr) {
      const std::size_t all = padded_bytes(head_.lengths, max_pieces);
      if (storage_.size() < all) storage_ = buffer<std::byte>(*memory_, all);
      to = storage_.span().subspan(padded_bytes(head_.lengths, i), head_.lengths[i]);
    }
    pieces_[i] = to;
    return to;
  }

  /// Borrows the pieces from `lender` until `give_back(lender)` is called.
  void borrow(const payload_views& pieces, void (*give_back)(void*) noexcept, void* lender) noexcept {
    pieces_ = pieces;
    release_ = give_back;
    lender_ = lender;
  }

  /// Copies the pieces to their destinations.
  void copy_from(const payload_views& pieces) {
    for (std::size_t i = 0; i < max_pieces; ++i) {
      if (!pieces[i].empty()) std::memcpy(destination(i).data(), pieces[i].data(), pieces[i].size());
    }
  }

 private:
  /// Throws `corrupt_message` if piece `i` does not consist of elements of `size` bytes.
  [[gnu::noinline]] void check_length(std::size_t i, std::size_t size) const {
    if (pieces_[i].size() % size != 0) {
      raise<corrupt_message>({"the piece length of ", pieces_[i].size(),
                              " bytes is not a multiple of the element size of ", size, " bytes"});
    }
  }

  pool* memory_;
  header head_{};
  payload_views pieces_{};
  std::array<std::span<std::byte>, max_pieces> places_{};
  buffer<std::byte> storage_;
  void (*release_)(void*) noexcept = nullptr;
  void* lender_ = nullptr;
  bool expected_ = false; // pieces must have the sizes in `places_`
  bool placed_ = false;   // and are written to those places
};

} // namespace spar
