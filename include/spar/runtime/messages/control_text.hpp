// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Assembles the texts of control messages from their parts.
#pragma once

#include <spar/core/memory/record_queue.hpp>
#include <spar/core/util/bounded_text.hpp>
#include <spar/runtime/messages/control_message.hpp>

namespace spar::detail {

/// Parts from the same source arrive in order; parts from different sources may be interleaved.
class texts {
 public:
  texts() = default;
  texts(const texts&) = delete;
  ~texts() {
    while (begun* one = begun_.pop_front()) delete one;
  }

  /// Returns the whole text, valid until the next call, if `part` is the last part of its text; else null. Throws
  /// `corrupt_message` if the text is longer than any that a rank sends.
  [[gnu::cold]] const bounded_text* add(const control_message& part) {
    begun* one = begun_.take([&](const begun& b) { return b.source == part.source && b.what == part.what; });
    if (one == nullptr && part.last != 0) { // the common case: allocates nothing
      last_ = {};
      last_.add({part.text.data(), part.length});
      return &last_;
    }
    if (one == nullptr) one = new begun{part.source, part.what};
    const bool fits = one->whole.size() + part.length <= max_text_length;
    one->whole.add({part.text.data(), part.length});
    if (fits && part.last == 0) {
      begun_.push_back(one);
      return nullptr;
    }
    last_ = one->whole;
    delete one;
    if (!fits) raise<corrupt_message>({"the text of a control message exceeds the maximum length"});
    return &last_;
  }

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

} // namespace spar::detail
