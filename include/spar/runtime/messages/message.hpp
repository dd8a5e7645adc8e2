// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A message: a validated header of 64 bytes and up to three pieces of payload.
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

/// How the pieces of a payload are to be read.
enum class wire_format : std::uint8_t {
  sparse = 1,  ///< pieces: indices, values; count entries
  dense = 2,   ///< piece 0: count values; piece 1, if any, continues them
  encoded = 3, ///< piece 0: a block codec's bytes; piece 1, if any, continues them
  parts = 4,   ///< pieces: entries of each part (64 bits each), indices, values
  coded = 5    ///< piece 0: a stream codec's bytes for count entries; piece 1, if any: the table of encoded parts
};

inline constexpr std::size_t max_pieces = 3;

/// The names and the form (of dense values or of streams) of a call.
struct call_form {
  std::string_view algorithm; ///< name
  std::string_view operation; ///< name
  bool dense = false;         ///< of dense values, not of streams
  std::uint64_t hash = 0;     ///< of the operation and the form
};

/// What all ranks of a call must agree on; every header carries its digest and its types.
struct signature {
  std::uint64_t digest = 0; ///< of the algorithm with its options, the operation, the form and the dimension
  element_code element{};
  element_code index{};
  std::uint64_t dimension = 0;
  const call_form* form = nullptr; ///< where it is known, for errors
};

/// In front of every message, in the sender's byte order (the magic number tells a stranger's apart).
struct header {
  static constexpr std::uint16_t expected_magic = 0x7073; // "sp"
  static constexpr std::uint8_t current_version = 2;

  /// Numbers of collectives are kept modulo this. A message's tag has the lane and the number modulo `max_in_flight`;
  /// its header has the rest.
  static constexpr std::uint64_t sequences = max_in_flight << 16;
  static constexpr std::uint16_t sequence_part(std::uint64_t number) noexcept {
    return static_cast<std::uint16_t>(number / max_in_flight);
  }

  /// Of a message that came with a short header: its digest stands for the dimension.
  static constexpr std::uint64_t unknown_dimension = UINT64_MAX;

  std::uint16_t magic = expected_magic;
  std::uint8_t version = current_version;
  wire_format format : 4 = {};
  element_code index : 4 = {};
  element_code element = {};
  std::uint8_t order = 0;      ///< among those of its lane to the same rank, where payloads are checked
  std::uint16_t sequence = 0;  ///< what the tag lacks of the collective's number
  std::uint64_t digest = 0;    ///< of what all ranks must agree on: see `signature`
  std::uint64_t dimension = 0; ///< n
  std::uint64_t count = 0;     ///< entries in this message
  std::array<std::uint64_t, max_pieces> lengths{}; ///< bytes of each piece
  std::uint32_t payload_checksum = 0;              ///< of the pieces, where the communicator checks payloads; else 0
  std::uint32_t checksum = 0; ///< CRC-32C of what stands before it; written where the header leaves its process

  [[nodiscard]] std::uint64_t payload_bytes() const noexcept { return lengths[0] + lengths[1] + lengths[2]; }
  [[nodiscard]] std::uint32_t expected_checksum() const noexcept { return crc32c(this, offsetof(header, checksum)); }

  /// Throws `corrupt_message` unless this is an undamaged header of this version.
  [[gnu::noinline]] void validate() const {
    if (magic != expected_magic) raise<corrupt_message>({"a message does not begin with spar's magic number"});
    if (version != current_version) {
      raise<corrupt_message>(
          {"a message has version ", version, " of the wire format; this is version ", current_version});
    }
    if (checksum != expected_checksum()) raise<corrupt_message>({"the checksum of a message's header is wrong"});
    constexpr std::uint64_t limit = std::uint64_t{1} << 58;
    if (lengths[0] > limit || lengths[1] > limit || lengths[2] > limit) {
      raise<corrupt_message>({"a message's header gives a piece of more than 2^58 bytes"});
    }
  }
};
static_assert(sizeof(header) == 64 && std::is_trivially_copyable_v<header>);

/// Pieces that share a block begin at multiples of 16 bytes.
constexpr std::size_t padded_bytes(std::size_t bytes) noexcept { return (bytes + 15) / 16 * 16; }
/// Bytes of the first `pieces` pieces in one block.
constexpr std::size_t padded_bytes(const std::array<std::uint64_t, max_pieces>& lengths, std::size_t pieces) noexcept {
  std::size_t sum = 0;
  for (std::size_t i = 0; i < pieces; ++i) sum += padded_bytes(lengths[i]);
  return sum;
}

using payload_views = std::array<std::span<const std::byte>, max_pieces>;

/// CRC-32C of the CRC-32C of each piece.
[[gnu::noinline]] inline std::uint32_t checksum_of(const payload_views& pieces) noexcept {
  std::array<std::uint32_t, max_pieces> each{};
  for (std::size_t i = 0; i < max_pieces; ++i) each[i] = crc32c(pieces[i].data(), pieces[i].size());
  return crc32c(each.data(), sizeof(each));
}

/// What an algorithm sends; the pieces are borrowed until the send has ended.
struct payload {
  wire_format format{};
  std::uint64_t count = 0; ///< entries
  payload_views pieces{};
  std::uint64_t plain_bytes = 0; ///< what coded pieces would take without their codec; 0 of others
};

/// What a transport sends: the payload below the header that the call's channel has given it.
struct message_pieces {
  header head;
  payload_views pieces{};
};

/// Where an incoming message goes: by default wherever it is cheapest for the transport (memory of the pool, or the
/// sender's own memory among in-process ranks), or to places given beforehand. Stays where it is: a transport keeps
/// its address while a receive is under way. It can take one message after the other, with `end_loan` or `release` in
/// between.
class message_buffer {
 public:
  [[gnu::noinline]] explicit message_buffer(pool& memory) noexcept : memory_(&memory) {}
  message_buffer(const message_buffer&) = delete;
  [[gnu::noinline]] ~message_buffer() { end_loan(); }

  /// Piece `i` has exactly the size of `destination` and is to be written there.
  template <class T>
  void place(std::size_t i, std::span<T> destination) {
    places_[i] = std::as_writable_bytes(destination);
    due_ = placed_ = true;
  }
  /// One piece of exactly so many bytes is due. It is not to stay in the sender's memory, which the sender may need
  /// before this rank has read it.
  void expect(std::size_t bytes) noexcept {
    places_ = {};
    places_[0] = {static_cast<std::byte*>(nullptr), bytes};
    due_ = true;
    placed_ = false;
  }

  [[nodiscard]] const header& head() const noexcept { return head_; }

  /// Throws `corrupt_message` unless the payload has the checksum that the header gives.
  [[gnu::noinline]] void verify_payload() const {
    if (head_.payload_checksum != checksum_of(pieces_)) {
      raise<corrupt_message>({"the checksum of a message's payload is wrong"});
    }
  }

  /// Piece `i` as values of T; throws `corrupt_message` where its length is not a multiple of T's.
  template <class T>
  [[nodiscard]] std::span<const T> piece(std::size_t i) const {
    check_length(i, sizeof(T));
    return {reinterpret_cast<const T*>(pieces_[i].data()), pieces_[i].size() / sizeof(T)};
  }

  /// Gives the payload's memory back; among in-process ranks this is what ends the sender's send.
  [[gnu::noinline]] void release() noexcept {
    end_loan();
    storage_.reset();
  }
  /// Gives back what is lent, and keeps memory of its own for the next message.
  void end_loan() noexcept {
    if (release_ != nullptr) std::exchange(release_, nullptr)(lender_);
    pieces_ = {};
  }

  // For transports.

  /// Whether the payload may not stay in the sender's memory, and whether it may not stay in the transport's either.
  [[nodiscard]] bool kept() const noexcept { return due_; }
  [[nodiscard]] bool placed() const noexcept { return placed_; }
  [[nodiscard]] std::span<std::byte> place_of(std::size_t i) const noexcept { return places_[i]; }

  /// Where the header of the message that has arrived is to be written.
  [[nodiscard]] header& arrived() noexcept { return head_; }
  /// False where a place has another size than its piece: then the receive ends without a payload, and `check_fit`
  /// throws once the headers have been compared.
  [[nodiscard]] bool fits() const noexcept {
    return !due_ || (head_.lengths[0] == places_[0].size() && head_.lengths[1] == places_[1].size() &&
                     head_.lengths[2] == places_[2].size());
  }

  /// Throws `mismatch` where a place has another size than the piece that came.
  void check_fit() const {
    if (fits()) return;
    for (std::size_t i = 0; i < max_pieces; ++i) {
      if (head_.lengths[i] != places_[i].size()) {
        raise<mismatch>({"a message brings ", head_.lengths[i], " bytes where this rank expects ", places_[i].size()});
      }
    }
  }

  /// Memory for piece `i`, whose length the accepted header gives; all pieces share a block.
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

  /// The pieces lie in memory that `lender` owns until `give_back(lender)` is called.
  void borrow(const payload_views& pieces, void (*give_back)(void*) noexcept, void* lender) noexcept {
    pieces_ = pieces;
    release_ = give_back;
    lender_ = lender;
  }

  /// Copies the pieces to their destinations.
  [[gnu::noinline]] void copy_from(const payload_views& pieces) {
    for (std::size_t i = 0; i < max_pieces; ++i) {
      if (!pieces[i].empty()) std::memcpy(destination(i).data(), pieces[i].data(), pieces[i].size());
    }
  }

 private:
  /// Throws `corrupt_message` unless piece `i` is made of elements of `size` bytes.
  [[gnu::noinline]] void check_length(std::size_t i, std::size_t size) const {
    if (pieces_[i].size() % size != 0) {
      raise<corrupt_message>({"a piece of ", pieces_[i].size(), " bytes does not hold elements of ", size, " bytes"});
    }
  }

  pool* memory_;
  header head_{};
  payload_views pieces_{};
  std::array<std::span<std::byte>, max_pieces> places_{};
  buffer<std::byte> storage_;
  void (*release_)(void*) noexcept = nullptr;
  void* lender_ = nullptr;
  bool due_ = false;    // a payload of these lengths
  bool placed_ = false; // and at these places
};

} // namespace spar
