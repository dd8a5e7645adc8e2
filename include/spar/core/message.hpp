// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The wire format: a validated header of 72 bytes, followed by up to three pieces of payload.
#pragma once

#include <spar/core/buffer.hpp>
#include <spar/core/crc32c.hpp>
#include <spar/core/element.hpp>
#include <spar/core/error.hpp>
#include <spar/core/pool.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

namespace spar {

using rank_t = std::int32_t;

/// How the pieces of a payload are to be read.
enum class wire_format : std::uint8_t {
  sparse = 1,  ///< pieces: indices, values; count entries
  dense = 2,   ///< piece 0: count values; piece 1, if any, continues them
  encoded = 3, ///< piece 0: a storage policy's own bytes; piece 1, if any, continues them
  parts = 4    ///< pieces: entries of each part (64 bits each), indices, values
};

inline constexpr std::size_t max_pieces = 3;

/// In front of every message, in the sender's byte order (the magic number tells a stranger's apart).
struct header {
  static constexpr std::uint32_t expected_magic = 0x72617073; // "spar"
  static constexpr std::uint16_t current_version = 1;

  std::uint32_t magic = expected_magic;
  std::uint16_t version = current_version;
  wire_format format{};
  std::uint8_t lane = 0;
  std::uint64_t sequence = 0;                      ///< number of the collective on its communicator
  std::uint64_t dimension = 0;                     ///< n
  std::uint64_t count = 0;                         ///< entries in this message
  std::array<std::uint64_t, max_pieces> lengths{}; ///< bytes of each piece
  std::uint32_t algorithm = 0;                     ///< hash of the algorithm's name
  std::uint32_t operation = 0;                     ///< hash of the operation's name
  element_code element{};
  element_code index{};
  std::uint16_t reserved = 0;
  std::uint32_t checksum = 0; ///< CRC-32C of what stands before it

  [[nodiscard]] std::uint64_t payload_bytes() const noexcept { return lengths[0] + lengths[1] + lengths[2]; }
  [[nodiscard]] std::uint32_t expected_checksum() const noexcept { return crc32c(this, offsetof(header, checksum)); }

  /// Throws `corrupt_message` unless this is an undamaged header of this version.
  [[gnu::noinline]] void validate() const {
    if (magic != expected_magic) throw corrupt_message("a message does not begin with spar's magic number");
    if (version != current_version) {
      throw corrupt_message(
          sentence("a message has version ", version, " of the wire format; this is version ", current_version));
    }
    if (checksum != expected_checksum()) throw corrupt_message("the checksum of a message's header is wrong");
    constexpr std::uint64_t limit = std::uint64_t{1} << 62;
    if (lengths[0] > limit || lengths[1] > limit || lengths[2] > limit) {
      throw corrupt_message("a message's header gives a piece of more than 2^62 bytes");
    }
  }
};
static_assert(sizeof(header) == 72 && std::is_trivially_copyable_v<header>);

/// An outgoing message; the pieces are borrowed until the send has ended.
struct message_pieces {
  header head;
  std::array<std::span<const std::byte>, max_pieces> pieces{};
};

/// Where an incoming message goes: by default wherever it is cheapest for the transport (memory of the pool, or the
/// sender's own memory among in-process ranks), or to places given beforehand. Stays where it is: a transport keeps
/// its address while a receive is under way.
class message_buffer {
 public:
  [[gnu::noinline]] explicit message_buffer(pool& memory) : memory_(&memory) {}
  message_buffer(const message_buffer&) = delete;
  [[gnu::noinline]] ~message_buffer() { release(); }

  /// Piece `i` has exactly the size of `destination` and is to be written there.
  template <class T>
  void place(std::size_t i, std::span<T> destination) {
    places_[i] = std::as_writable_bytes(destination);
    placed_ = true;
  }

  [[nodiscard]] const header& head() const noexcept { return head_; }

  /// Piece `i` as values of T; throws `corrupt_message` where its length is not a multiple of T's.
  template <class T>
  [[nodiscard]] std::span<const T> piece(std::size_t i) const {
    check_length(i, sizeof(T));
    return {reinterpret_cast<const T*>(pieces_[i].data()), pieces_[i].size() / sizeof(T)};
  }

  /// Gives the payload's memory back; among in-process ranks this is what ends the sender's send.
  [[gnu::noinline]] void release() noexcept {
    if (release_ != nullptr) std::exchange(release_, nullptr)(lender_);
    pieces_ = {};
    for (auto& s : storage_) s = {};
  }

  // For transports.

  [[nodiscard]] bool placed() const noexcept { return placed_; }
  [[nodiscard]] std::size_t placed_bytes() const noexcept {
    return places_[0].size() + places_[1].size() + places_[2].size();
  }
  [[nodiscard]] std::span<std::byte> place_of(std::size_t i) const noexcept { return places_[i]; }

  /// Takes the header that has arrived; throws `corrupt_message`. False where a place has another size than its piece:
  /// then the receive ends without a payload, and `check_fit` throws once the headers have been compared.
  [[nodiscard, gnu::noinline]] bool accept(const header& arrived) {
    arrived.validate();
    head_ = arrived;
    for (std::size_t i = 0; placed_ && i < max_pieces; ++i) fits_ = fits_ && arrived.lengths[i] == places_[i].size();
    return fits_;
  }

  /// Throws `mismatch` where a place has another size than the piece that came.
  void check_fit() const {
    if (fits_) return;
    for (std::size_t i = 0; i < max_pieces; ++i) {
      if (head_.lengths[i] != places_[i].size()) {
        throw mismatch(
            sentence("a message brings ", head_.lengths[i], " bytes where this rank expects ", places_[i].size()));
      }
    }
  }

  /// Memory for piece `i`, whose length the accepted header gives.
  std::span<std::byte> destination(std::size_t i) {
    if (placed_) {
      pieces_[i] = places_[i];
      return places_[i];
    }
    storage_[i] = buffer<std::byte>(*memory_, head_.lengths[i]);
    pieces_[i] = storage_[i].span();
    return storage_[i].span();
  }

  /// The pieces lie in memory that `lender` owns until `give_back(lender)` is called.
  void borrow(const std::array<std::span<const std::byte>, max_pieces>& pieces, void (*give_back)(void*) noexcept,
              void* lender) noexcept {
    pieces_ = pieces;
    release_ = give_back;
    lender_ = lender;
  }

  /// Copies the pieces to their destinations.
  [[gnu::noinline]] void copy_from(const std::array<std::span<const std::byte>, max_pieces>& pieces) {
    for (std::size_t i = 0; i < max_pieces; ++i) {
      if (!pieces[i].empty()) std::memcpy(destination(i).data(), pieces[i].data(), pieces[i].size());
    }
  }

 private:
  /// Throws `corrupt_message` unless piece `i` is made of elements of `size` bytes.
  [[gnu::noinline]] void check_length(std::size_t i, std::size_t size) const {
    if (pieces_[i].size() % size != 0) {
      throw corrupt_message(
          sentence("a piece of ", pieces_[i].size(), " bytes does not hold elements of ", size, " bytes"));
    }
  }

  pool* memory_;
  header head_{};
  std::array<std::span<const std::byte>, max_pieces> pieces_{};
  std::array<std::span<std::byte>, max_pieces> places_{};
  std::array<buffer<std::byte>, max_pieces> storage_{};
  void (*release_)(void*) noexcept = nullptr;
  void* lender_ = nullptr;
  bool placed_ = false;
  bool fits_ = true;
};

} // namespace spar
