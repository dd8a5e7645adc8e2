// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of control_message.hpp that do not depend on the type of values.
#pragma once

#include <spar/runtime/messages/control_message.hpp>

namespace spar::inline v0_1 {

SPAR_INLINE void control_message::validate(rank_t ranks) const {
  if (checksum != expected_checksum() || what < purpose::abort || what > purpose::wait || last > 1 ||
      length > text.size() || source < 0 || source >= ranks) {
    raise<corrupt_message>({"a control message has a wrong checksum or a field out of range: checksum ", checksum,
                            " (expected ", expected_checksum(), "), purpose ", static_cast<unsigned>(what),
                            " (1 to 7), last ", last, " (0 or 1), length ", length, " (at most ", text.size(),
                            "), source ", source, " (0 to ", ranks - 1, ")"});
  }
}

SPAR_INLINE control_message part_of(control_message::purpose what, rank_t source, std::string_view text,
                                    std::size_t at) {
  control_message part{.what = what, .source = source};
  const std::size_t rest = std::min(text.size(), max_text_length) - at;
  part.length = static_cast<std::uint8_t>(std::min(rest, part.text.size()));
  part.last = rest <= part.text.size() ? 1 : 0;
  if (part.length != 0) std::memcpy(part.text.data(), text.data() + at, part.length);
  part.checksum = part.expected_checksum();
  return part;
}

} // namespace spar::inline v0_1
