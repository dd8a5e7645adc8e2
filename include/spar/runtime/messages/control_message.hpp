// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Control messages, which have 64 bytes and which a rank handles without having started a receive. Control messages are
// about failed ranks, the numbers of named collectives, the rounds of partial collectives, and the calls of peers.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/error.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/core/util/bounded_text.hpp>
#include <spar/core/util/crc32c.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace spar::inline v0_1 {

/// A control message contains a text, or one part of a longer text, that a rank sends to another rank. The parts of a
/// text are sent in order.
struct control_message {
  /// What a control message is about.
  enum class purpose : std::uint8_t {
    abort = 1, ///< a rank has failed: the text begins with the number of the rank, and the reason follows
    gone = 2,  ///< the source has given up its messages in flight; the receiver must not read their memory any more
    name = 3,  ///< the source, rank 0, has assigned a number to the name of a collective
    round = 4, ///< about a round of a partial collective; the text begins with the number of a control_subscriber
    call = 5,  ///< describes a call of the source: see runtime/peer_query.hpp
    left = 6,  ///< the source has left: it starts no call any more. The text says how many calls it has started (see
               ///< endpoint/leavers.hpp), and is empty if the communicator is dead
    wait = 7   ///< asks for what the receiver waits, or answers: see runtime/wait_errors.hpp
  };

  purpose what = purpose::abort; ///< what the text is about
  std::uint8_t last = 1;         ///< 1 if this is the last part of the text, else 0
  std::uint8_t length = 0;       ///< characters of the text in this part
  std::uint8_t reserved = 0;     ///< always 0
  rank_t source = 0;             ///< the rank that sends the message
  std::array<char, 52> text{};   ///< the text, of which `length` characters are used
  std::uint32_t checksum = 0;    ///< CRC-32C of the preceding 60 bytes

  /// The greatest number of parts of a text.
  static constexpr std::size_t most_parts = (max_text_length + 51) / 52;

  /// The checksum of the preceding 60 bytes.
  [[nodiscard]] std::uint32_t expected_checksum() const noexcept {
    return crc32c(this, offsetof(control_message, checksum));
  }
  /// Throws `corrupt_message` if a field or the checksum of this message is invalid. `ranks` is the size of the
  /// communicator.
  void validate(rank_t ranks) const;
};
static_assert(sizeof(control_message) == 64 && std::is_trivially_copyable_v<control_message>);

/// Returns the control message from `source`, for the purpose `what`, with the part of `text` that begins at the offset
/// `at`.
control_message part_of(control_message::purpose what, rank_t source, std::string_view text, std::size_t at);

} // namespace spar::inline v0_1

#ifndef SPAR_COMPILED
#include <spar/runtime/messages/control_message-inl.hpp>
#endif
