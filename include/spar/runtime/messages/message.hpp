// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Messages: each has a header of 64 bytes, which the receiver checks, and a payload of up to three pieces.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/element.hpp>
#include <spar/core/error.hpp>
#include <spar/core/memory/buffer.hpp>
#include <spar/core/util/crc32c.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory_resource>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

namespace spar::inline v0_1 {

/// The format of the payload of a message, that is, the contents of its pieces.
enum class wire_format : std::uint8_t {
  sparse = 1,      ///< piece 0: the indices of `count` entries; piece 1: their values
  dense = 2,       ///< piece 0, continued in piece 1 if present: `count` values
  block_coded = 3, ///< piece 0, continued in piece 1 if present: the bytes of a block codec
  /// piece 0: where each stream ends (64 bits each); piece 1: all indices; piece 2: all values. With `count` 0, a flag
  /// in place of a slice that a rank withholds (see withheld_slice)
  parts = 4,
  /// piece 0: bytes of a stream codec for `count` entries; piece 1, if any: size and format per stream, or, in a
  /// `mixed_message`, numbers, with sets and values in piece 2
  entries_coded = 5,
  absent = 6 ///< no stream, in place of a stream that the rank does not send (see sum_if_short)
};

/// The number of pieces of a payload.
inline constexpr std::size_t max_pieces = 3;

/// The algorithm and the operation of a call, and whether the call is on dense vectors or on sparse streams.
struct call_form {
  std::string_view algorithm; ///< name of the algorithm
  std::string_view operation; ///< name of the operation
  bool dense = false;         ///< true for dense vectors, false for sparse streams
  std::size_t width = 0;      ///< number of values of a row; 0 if values are not rows
  std::uint64_t hash = 0;     ///< hash of `operation`, `dense` and `width`
};

/// The properties of a call on which all ranks must agree. Every header contains the digest and the types.
struct signature {
  std::uint64_t digest = 0;        ///< hash of the algorithm, its options, the dimension, the types and `form->hash`
  element_code element{};          ///< the type of the values
  element_code index{};            ///< the type of the indices; uint32 for dense values
  rank_t root = -1;                ///< the root, for error messages; -1 if the algorithm has none
  std::uint64_t dimension = 0;     ///< the dimension n
  const call_form* form = nullptr; ///< names of algorithm and operation, for error messages; null if unknown
};

/// The header of every message, in the byte order of the sender. A wrong magic number reveals a message that spar has
/// not sent, or that comes from a machine with another byte order.
struct header {
  static constexpr std::uint16_t expected_magic = 0x7073; ///< "sp", in a little-endian machine
  static constexpr std::uint8_t current_version = 3;      ///< the version of the wire format

  /// A message contains the number of its collective only modulo `sequences`. The tag of the message holds the lane and
  /// the number modulo `max_in_flight`; the header holds the other 16 bits of the number.
  static constexpr std::uint64_t sequences = max_in_flight << 16;
  /// The part of the collective's number `number` that the header holds.
  static constexpr std::uint16_t sequence_part(std::uint64_t number) noexcept {
    return static_cast<std::uint16_t>(number / max_in_flight);
  }

  /// The value of `dimension` if the message had a short header (runtime/messages/envelope.hpp), which contains the
  /// dimension only as a part of the digest.
  static constexpr std::uint64_t unknown_dimension = UINT64_MAX;

  std::uint16_t magic = expected_magic;   ///< `expected_magic`
  std::uint8_t version = current_version; ///< the version of the wire format of the sender
  wire_format format : 4 = {};            ///< the contents of the pieces
  element_code index : 4 = {};            ///< the type of the indices of the call
  element_code element = {};              ///< the type of the values of the call
  std::uint8_t order = 0;      ///< with checksums: number of earlier messages to the receiver on this lane, modulo 256
  std::uint16_t sequence = 0;  ///< the part of the collective's number that is not in the tag of the message
  std::uint64_t digest = 0;    ///< `signature::digest` of the call, XOR `call_identity::history`
  std::uint64_t dimension = 0; ///< dimension n of the vectors
  std::uint64_t count = 0;     ///< entries or values in this message
  std::array<std::uint64_t, max_pieces> lengths{}; ///< size of each piece in bytes
  std::uint32_t payload_checksum = 0;              ///< with checksums: `checksum_of` the pieces, else 0
  std::uint32_t checksum = 0; ///< CRC-32C of the preceding 60 bytes; written over MPI, or if checksums are on

  /// The size of all pieces in bytes.
  [[nodiscard]] std::uint64_t payload_bytes() const noexcept { return lengths[0] + lengths[1] + lengths[2]; }
  /// The checksum of the preceding 60 bytes.
  [[nodiscard]] std::uint32_t expected_checksum() const noexcept { return crc32c(this, offsetof(header, checksum)); }

  /// Throws `corrupt_message` if the header is damaged or has another version of the wire format.
  void validate() const;
};
static_assert(sizeof(header) == 64 && std::is_trivially_copyable_v<header>);

/// The number of bytes that a piece of `bytes` bytes occupies in a block of memory that contains all pieces of a
/// message, each beginning at a multiple of 16 bytes.
constexpr std::size_t padded_bytes(std::size_t bytes) noexcept { return (bytes + 15) / 16 * 16; }
/// The number of bytes that the first `pieces` pieces, of the sizes `lengths`, occupy in a block of memory that
/// contains all pieces of a message.
constexpr std::size_t padded_bytes(const std::array<std::uint64_t, max_pieces>& lengths, std::size_t pieces) noexcept {
  std::size_t sum = 0;
  for (std::size_t i = 0; i < pieces; ++i) sum += padded_bytes(lengths[i]);
  return sum;
}

/// The size in bytes, with padding, of the largest payload of a short message, which transports send together with its
/// header.
inline constexpr std::size_t enclosed_bytes = 4096;

/// The pieces of a payload, in memory of another object; unused pieces are empty.
using payload_views = std::array<std::span<const std::byte>, max_pieces>;

/// The number of bytes that all `pieces` occupy in one block of memory.
inline std::size_t padded_bytes(const payload_views& pieces) noexcept {
  std::size_t sum = 0;
  for (const auto& piece : pieces) sum += padded_bytes(piece.size());
  return sum;
}
/// Copies the `pieces` into `block`, which has `padded_bytes(pieces)` bytes. Returns the place of each piece in the
/// block.
inline payload_views pack(const payload_views& pieces, std::byte* block) noexcept {
  payload_views packed{};
  for (std::size_t i = 0; i < max_pieces; ++i) {
    if (!pieces[i].empty()) std::memcpy(block, pieces[i].data(), pieces[i].size());
    packed[i] = {block, pieces[i].size()};
    block += padded_bytes(pieces[i].size());
  }
  return packed;
}

/// The checksum of a payload: the CRC-32C of the three CRC-32Cs of its `pieces`.
std::uint32_t checksum_of(const payload_views& pieces) noexcept;

/// The payload of a message that an algorithm sends. The send borrows the pieces until the send ends.
struct payload {
  wire_format format{};          ///< the contents of the pieces
  std::uint64_t count = 0;       ///< entries or values in the pieces
  payload_views pieces{};        ///< what is sent, in memory of the sender
  std::uint64_t plain_bytes = 0; ///< bytes of the pieces before encoding; 0 if the other fields imply this number
};

/// A payload in device memory that stays there until the receiver has read it: see `device_path::loaned`.
struct device_loan {
  /// Called by the receiver's thread when the receiver needs the payload no longer, before the sender gets it back.
  void (*returned)(device_loan& self) noexcept;
};

/// A message as a transport sends it: the pieces of a payload, and the header that the channel of the call has added.
struct message_pieces {
  header head;                 ///< the header
  payload_views pieces{};      ///< the payload, in memory of the sender
  void* stream = nullptr;      ///< see `device_path::streamed`; null if the pieces are in host memory
  device_loan* loan = nullptr; ///< see `device_path::loaned`; null otherwise

  /// With checksums: adds that of the pieces, which must be in host memory, to the header.
  void add_payload_checksum() noexcept {
    head.payload_checksum = checksum_of(pieces);
    head.checksum = head.expected_checksum();
  }
};

/// The destination of an incoming message. By default the transport chooses the cheapest place for the payload: memory
/// of the pool, memory of the transport or, with in-process ranks, memory of the sender, where the payload stays.
/// `place` chooses other places. A message_buffer must not move while a receive is in flight, because the transport
/// keeps its address. A message_buffer can receive several messages one after another, if `end_loan` or `release` is
/// called between them.
class message_buffer {
 public:
  /// Creates a destination whose payloads are in memory of the transport or in `memory`, usually the rank's pool.
  [[gnu::noinline]] SPAR_INLINE explicit message_buffer(std::pmr::memory_resource& memory) noexcept;
  message_buffer(const message_buffer&) = delete;
  [[gnu::noinline]] SPAR_INLINE ~message_buffer();

  /// Makes the transport write piece `i` to `destination`. The piece must have exactly the size of `destination`;
  /// otherwise `check_fit` throws `mismatch`.
  template <class T>
  void place(std::size_t i, std::span<T> destination) {
    places_[i] = std::as_writable_bytes(destination);
    sizes_[i] = destination.size_bytes();
    expected_ = placed_ = true;
  }
  /// Makes the transport accept only a payload of one piece of exactly `bytes` bytes, and copy the piece to memory of
  /// this rank, because the sender may need its own memory before this rank has read the piece.
  void expect(std::size_t bytes) noexcept {
    places_ = {};
    sizes_ = {bytes};
    expected_ = true;
    placed_ = false;
  }

  /// The header of the message that has arrived.
  [[nodiscard]] const header& head() const noexcept { return head_; }

  /// Throws `corrupt_message` if the checksum of the payload differs from the checksum in the header.
  void verify_payload() const;

  /// The payload that has arrived.
  [[nodiscard]] const payload_views& pieces() const noexcept { return pieces_; }
  /// Returns piece `i` as values of type T. Throws `corrupt_message` if the size of the piece is not a multiple of the
  /// size of T.
  template <class T>
  [[nodiscard]] std::span<const T> piece(std::size_t i) const {
    check_length(i, sizeof(T));
    return {reinterpret_cast<const T*>(pieces_[i].data()), pieces_[i].size() / sizeof(T)};
  }

  /// Returns the memory of the payload to its owner: the pool, the transport or, with in-process ranks, the sender,
  /// whose send then ends.
  void release() noexcept;
  /// Gives back memory that this message_buffer has borrowed from a sender or the transport, but keeps memory from the
  /// pool for the next message.
  void end_loan() noexcept {
    if (release_ != nullptr) std::exchange(release_, nullptr)(lender_);
    pieces_ = {};
    loan_ = nullptr;
  }

  // Functions for transports.

  /// Whether the transport must not leave the payload in memory of the sender.
  [[nodiscard]] bool kept() const noexcept { return expected_; }
  /// Whether the transport must write the payload to places that `place` has chosen.
  [[nodiscard]] bool placed() const noexcept { return placed_; }
  /// The size in bytes of piece `i` that `place` or `expect` has set.
  [[nodiscard]] std::size_t expected_bytes(std::size_t i) const noexcept { return sizes_[i]; }

  /// Whether the payload belongs in device memory.
  [[nodiscard]] bool on_device() const noexcept { return stream_ != nullptr; }
  /// The stream of the work on a payload that belongs in device memory; null otherwise.
  [[nodiscard]] void* stream() const noexcept { return stream_; }
  /// Makes the payload belong in device memory, whose work is in the stream `of_work`, a cudaStream_t.
  void set_stream(void* of_work) noexcept { stream_ = of_work; }

  /// The header of the message, which the transport writes when the message arrives.
  [[nodiscard]] header& arrived() noexcept { return head_; }
  /// Whether the pieces have the sizes set by `place` or `expect`; true if no sizes are set. If a size differs, the
  /// receive ends without a payload. The channel then checks the header and calls `check_fit`, which throws.
  [[nodiscard]] bool fits() const noexcept {
    const auto& sent = head_.lengths; // compared one by one, because g++ calls memcmp for arrays
    return !expected_ || (sent[0] == sizes_[0] && sent[1] == sizes_[1] && sent[2] == sizes_[2]);
  }

  /// Throws `mismatch` if the size of a piece differs from the size set by `place` or `expect`.
  void check_fit() const;

  /// Throws `corrupt_message` unless the pieces that have arrived have the sizes that the header names. Called before
  /// the pieces are copied to memory of these sizes, because the channel checks the header only later.
  void check_sizes(const payload_views& pieces) const;

  /// Returns the memory for piece `i`, whose size is in the header that has arrived. Pieces for which `place` has not
  /// chosen a place share a block of memory from the pool.
  std::span<std::byte> destination(std::size_t i);

  /// Borrows the memory of the `pieces` from `lender` until `end_loan` returns the memory by `give_back(lender)`;
  /// `loan` is that of a payload in device memory.
  void borrow(const payload_views& pieces, void (*give_back)(void*) noexcept, void* lender,
              device_loan* loan = nullptr) noexcept {
    pieces_ = pieces;
    release_ = give_back;
    lender_ = lender;
    loan_ = loan;
  }
  /// Whether the payload is in memory that `end_loan` returns.
  [[nodiscard]] bool borrows() const noexcept { return release_ != nullptr; }
  /// The loan of a borrowed payload in device memory; null for any other payload.
  [[nodiscard]] device_loan* loan() const noexcept { return loan_; }
  /// Copies each piece of a borrowed payload to its destination by `copy(to, from, bytes)`, and ends the loan.
  template <class Copy>
  void keep_by(Copy copy) {
    const payload_views borrowed = pieces_;
    for (std::size_t i = 0; i < max_pieces; ++i) {
      if (!borrowed[i].empty()) copy(destination(i).data(), borrowed[i].data(), borrowed[i].size());
    }
    const payload_views kept = pieces_;
    end_loan();
    pieces_ = kept;
  }

  /// Copies each of the `pieces` to its destination: see `destination`.
  void copy_from(const payload_views& pieces);

 private:
  /// Throws `corrupt_message` if the size of piece `i` is not a multiple of `size` bytes, the size of an element.
  void check_length(std::size_t i, std::size_t size) const;

  std::pmr::memory_resource* memory_;
  header head_{};
  payload_views pieces_{};
  std::array<std::span<std::byte>, max_pieces> places_{};
  std::array<std::uint64_t, max_pieces> sizes_{};
  buffer<std::byte> storage_;
  void (*release_)(void*) noexcept = nullptr;
  void* lender_ = nullptr;
  device_loan* loan_ = nullptr;
  void* stream_ = nullptr;
  bool expected_ = false; // pieces must have the sizes in `sizes_`
  bool placed_ = false;   // pieces must be written to `places_`
};

} // namespace spar::inline v0_1

#ifndef SPAR_COMPILED
#include <spar/runtime/messages/message-inl.hpp>
#endif
