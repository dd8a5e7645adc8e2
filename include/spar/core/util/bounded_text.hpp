// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A text of bounded length that allocates no memory, for control messages and for descriptions of policies.
#pragma once

#include <spar/core/error.hpp>
#include <spar/core/util/algobase.hpp>

#include <array>
#include <cstdarg>
#include <cstddef>
#include <cstring>
#include <exception>
#include <string_view>
#include <type_traits>

namespace spar::inline v0_1 {

/// Maximum length, in characters, of a text that one rank sends to another in control messages. Longer texts are
/// truncated.
inline constexpr std::size_t max_text_length = 520;

namespace detail {

/// Text of at most `max_text_length` characters and a terminating zero; further characters are dropped. Used instead of
/// std::string to keep compile times short: in C++20, each program compiles the code of std::string anew.
class bounded_text {
 public:
  bounded_text() = default;

  [[nodiscard]] std::string_view view() const noexcept { return {text_.data(), size_}; }
  [[nodiscard]] const char* c_str() const noexcept { return text_.data(); }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }

  [[gnu::cold]] void add(std::string_view more) noexcept {
    const std::size_t fits = std::min(more.size(), max_text_length - size_);
    std::memcpy(text_.data() + size_, more.data(), fits);
    shrink(size_ + fits);
  }
  template <class... Parts>
  void add_parts(Parts... parts) noexcept {
    static_assert(!(std::is_class_v<Parts> || ...), "only numbers and texts that end with a zero");
    add_all(kinds_of_parts<Parts...>, parts...);
  }
  void shrink(std::size_t size) noexcept {
    size_ = size;
    text_[size_] = '\0';
  }

 private:
  [[gnu::cold]] void add_all(const char* kinds, ...) noexcept {
    va_list parts;
    va_start(parts, kinds);
    size_ =
        std::min(size_ + write_parts(text_.data() + size_, max_text_length + 1 - size_, kinds, parts), max_text_length);
    va_end(parts);
  }

  std::size_t size_ = 0;
  std::array<char, max_text_length + 1> text_{};
};

/// Returns the error message of the exception that `why` points to. The exception may have any type. Takes no memory,
/// because the exception may be std::bad_alloc.
[[gnu::cold]] inline bounded_text message_of(const std::exception_ptr& why) noexcept {
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
