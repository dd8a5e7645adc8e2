// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of message.hpp that do not depend on the type of values.
#pragma once

#include <spar/runtime/messages/message.hpp>

namespace spar::inline v0_1 {

SPAR_INLINE void header::validate() const {
  if (magic != expected_magic) {
    raise<corrupt_message>({"a message begins with ", magic, " instead of spar's magic number ", expected_magic});
  }
  if (version != current_version) {
    raise<corrupt_message>(
        {"a message has version ", version, " of the wire format, but this rank has version ", current_version});
  }
  if (checksum != expected_checksum()) {
    raise<corrupt_message>(
        {"the checksum of a message's header is wrong: expected ", expected_checksum(), ", got ", checksum});
  }
  constexpr std::uint64_t limit = std::uint64_t{1} << 58;
  if (lengths[0] > limit || lengths[1] > limit || lengths[2] > limit) {
    raise<corrupt_message>({"a message header has the piece sizes ", lengths[0], ", ", lengths[1], " and ", lengths[2],
                            " bytes, but a piece has at most 2^58 bytes"});
  }
}

SPAR_INLINE std::uint32_t checksum_of(const payload_views& pieces) noexcept {
  std::array<std::uint32_t, max_pieces> each{};
  for (std::size_t i = 0; i < max_pieces; ++i) each[i] = crc32c(pieces[i].data(), pieces[i].size());
  return crc32c(each.data(), sizeof(each));
}

message_buffer::message_buffer(std::pmr::memory_resource& memory) noexcept : memory_(&memory) {}

message_buffer::~message_buffer() { end_loan(); }

SPAR_INLINE void message_buffer::verify_payload() const {
  if (head_.payload_checksum != checksum_of(pieces_)) {
    raise<corrupt_message>({"the checksum of a message's payload is wrong: expected ", head_.payload_checksum, ", got ",
                            checksum_of(pieces_)});
  }
}

[[gnu::noinline]] SPAR_INLINE void message_buffer::release() noexcept {
  end_loan();
  storage_.reset();
}

SPAR_INLINE void message_buffer::check_fit() const {
  if (fits()) return;
  for (std::size_t i = 0; i < max_pieces; ++i) {
    if (head_.lengths[i] != sizes_[i]) {
      raise<mismatch>({"piece ", i, " of a message has ", head_.lengths[i], " bytes, but the receiver expects ",
                       sizes_[i], " bytes"});
    }
  }
}

SPAR_INLINE void message_buffer::check_sizes(const payload_views& pieces) const {
  for (std::size_t i = 0; i < max_pieces; ++i) {
    if (head_.lengths[i] != pieces[i].size()) {
      raise<corrupt_message>({"the header of a message names ", head_.lengths[i], " bytes for piece ", i,
                              ", but the piece has ", pieces[i].size(), " bytes"});
    }
  }
}

SPAR_INLINE std::span<std::byte> message_buffer::destination(std::size_t i) {
  std::span<std::byte> to = places_[i];
  if (to.data() == nullptr) {
    const std::size_t all = padded_bytes(head_.lengths, max_pieces);
    if (storage_.size() < all) storage_ = buffer<std::byte>(*memory_, all);
    to = storage_.span().subspan(padded_bytes(head_.lengths, i), head_.lengths[i]);
  }
  pieces_[i] = to;
  return to;
}

SPAR_INLINE void message_buffer::copy_from(const payload_views& pieces) {
  for (std::size_t i = 0; i < max_pieces; ++i) {
    if (!pieces[i].empty()) std::memcpy(destination(i).data(), pieces[i].data(), pieces[i].size());
  }
}

[[gnu::noinline]] SPAR_INLINE void message_buffer::check_length(std::size_t i, std::size_t size) const {
  if (pieces_[i].size() % size != 0) {
    raise<corrupt_message>({"the size of piece ", i, " of a message, ", pieces_[i].size(),
                            " bytes, is not a multiple of the element size of ", size, " bytes"});
  }
}

} // namespace spar::inline v0_1
