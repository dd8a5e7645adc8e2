// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of bounded_text.hpp that do not depend on the type of values.
#pragma once

#include <spar/core/util/bounded_text.hpp>

namespace spar::inline v0_1 {

namespace detail {

SPAR_INLINE void bounded_text::add(std::string_view more) noexcept {
  const std::size_t fits = std::min(more.size(), max_text_length - size_);
  std::memcpy(text_.data() + size_, more.data(), fits);
  shrink(size_ + fits);
}

SPAR_INLINE void bounded_text::add_all(const char* kinds, ...) noexcept {
  va_list parts;
  va_start(parts, kinds);
  size_ =
      std::min(size_ + write_parts(text_.data() + size_, max_text_length + 1 - size_, kinds, parts), max_text_length);
  va_end(parts);
}

SPAR_INLINE bounded_text message_of(const std::exception_ptr& why) noexcept {
  bounded_text message;
  try {
    std::rethrow_exception(why);
  } catch (const std::exception& e) {
    message.add(e.what());
  } catch (...) {
    message.add("an exception that is not derived from std::exception");
  }
  return message;
}

} // namespace detail

} // namespace spar::inline v0_1
