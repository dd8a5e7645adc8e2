// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Control messages: 64 bytes that come unasked. They tell the others a rank's failure, the numbers of named collectives
// and what concerns the rounds of partial ones.
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
#include <string>
#include <string_view>
#include <type_traits>

namespace spar {

/// One part of a text that a rank sends to another, in order.
struct control_message {
  enum class purpose : std::uint8_t {
    abort = 1, ///< the source has failed, for the reason that the text gives
    gone = 2,  ///< the source has given up what it was sending: its memory is not to be read any more
    name = 3,  ///< the source, rank 0, has given the name of a collective a number
    round = 4, ///< about the rounds of a partial collective, for the control_subscriber of that number
    call = 5,  ///< the source has waited for this rank for long, in the call of that header
    left = 6   ///< all that the source, whose communicator is dead, was sending has left
  };

  purpose what = purpose::abort;
  std::uint8_t last = 1;   ///< 1 where no further part follows, else 0
  std::uint8_t length = 0; ///< of the text in this part
  std::uint8_t reserved = 0;
  rank_t source = 0;
  std::array<char, 52> text{};
  std::uint32_t checksum = 0; ///< CRC-32C of what stands before it

  [[nodiscard]] std::uint32_t expected_checksum() const noexcept {
    return crc32c(this, offsetof(control_message, checksum));
  }
  /// Throws `corrupt_message` unless this is one.
  void validate(rank_t ranks) const {
    if (checksum != expected_checksum() || what < purpose::abort || what > purpose::left || last > 1 ||
        length > text.size() || source < 0 || source >= ranks) {
      raise<corrupt_message>({"a control message is damaged"});
    }
  }
};
static_assert(sizeof(control_message) == 64 && std::is_trivially_copyable_v<control_message>);

/// The part of `text` that begins at `at`.
inline control_message part_of(control_message::purpose what, rank_t source, std::string_view text, std::size_t at) {
  control_message part{.what = what, .source = source};
  const std::size_t rest = std::min(text.size(), max_text_length) - at;
  part.length = static_cast<std::uint8_t>(std::min(rest, part.text.size()));
  part.last = rest <= part.text.size() ? 1 : 0;
  std::memcpy(part.text.data(), text.data() + at, part.length);
  part.checksum = part.expected_checksum();
  return part;
}

} // namespace spar
