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

  [[gnu::cold]] void add(std::string_view more) noexcept;
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
  [[gnu::cold]] void add_all(const char* kinds, ...) noexcept;

  std::size_t size_ = 0;
  std::array<char, max_text_length + 1> text_{};
};

/// Returns the error message of the exception that `why` points to. The exception may have any type. Takes no memory,
/// because the exception may be std::bad_alloc.
[[gnu::cold]] bounded_text message_of(const std::exception_ptr& why) noexcept;

} // namespace detail

} // namespace spar::inline v0_1

#ifndef SPAR_COMPILED
#include <spar/core/util/bounded_text-inl.hpp>
#endif
