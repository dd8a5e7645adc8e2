// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of control_text.hpp that do not depend on the type of values.
#pragma once

#include <spar/runtime/messages/control_text.hpp>

namespace spar::inline v0_1::detail {

SPAR_INLINE texts::~texts() {
  while (begun* one = begun_.pop_front()) delete one;
}

SPAR_INLINE const bounded_text* texts::add(const control_message& part) {
  begun* one = begun_.take([&](const begun& b) { return b.source == part.source && b.what == part.what; });
  if (one == nullptr && part.last != 0) { // a text of one part, the common case, needs no allocation
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
  if (!fits)
    raise<corrupt_message>(
        {"a text in control messages from rank ", part.source, " has more than ", max_text_length, " characters"});
  return &last_;
}

} // namespace spar::inline v0_1::detail
