// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Assembles texts from their parts, each of which arrives in one control message.
#pragma once

#include <spar/core/memory/record_queue.hpp>
#include <spar/core/util/bounded_text.hpp>
#include <spar/runtime/messages/control_message.hpp>

namespace spar::inline v0_1::detail {

/// The texts of which only some parts have arrived. Parts from the same source arrive in order; parts from different
/// sources may be interleaved.
class texts {
 public:
  texts() = default;
  texts(const texts&) = delete;
  ~texts();

  /// Adds `part` to its text. If `part` is the last part, returns the whole text, which is valid until the next call of
  /// `add`; otherwise returns null. Throws `corrupt_message` if the text has more than `max_text_length` characters.
  [[gnu::cold]] const bounded_text* add(const control_message& part);

 private:
  struct begun {
    rank_t source;
    control_message::purpose what;
    bounded_text whole{};
    begun* next = nullptr;
  };
  record_queue<begun> begun_;
  bounded_text last_;
};

} // namespace spar::inline v0_1::detail

#ifndef SPAR_COMPILED
#include <spar/runtime/messages/control_text-inl.hpp>
#endif
