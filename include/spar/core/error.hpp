// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The exceptions that spar throws. The message of each exception is one sentence that contains the values that caused
// the error.
#pragma once

#include <spar/core/compiler.hpp>

#include <concepts>
#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace spar::inline v0_1 {

namespace detail {

/// The letter by which `write_parts` recognizes a part of the type Part.
template <class Part>
consteval char kind_of_part() {
  if constexpr (std::same_as<Part, float> || std::same_as<Part, double>) {
    return 'd';
  } else if constexpr (std::integral<Part>) {
    if (sizeof(Part) > sizeof(int)) return std::signed_integral<Part> ? 'l' : 'm';
    return std::signed_integral<Part> ? 'i' : 'u';
  } else if constexpr (std::same_as<Part, std::string_view>) {
    return 'v';
  } else {
    static_assert(std::convertible_to<Part, const char*> || std::same_as<Part, std::string>,
                  "a part of a sentence is a number, a text that ends with a zero, a std::string or a "
                  "std::string_view");
    return 't';
  }
}
template <class... Parts>
inline constexpr char kinds_of_parts[] = {kind_of_part<Parts>()..., '\0'};

/// Writes the parts of a sentence to `to`, truncated to `room` characters including the terminating zero. Returns the
/// length of the whole sentence. `kinds` has one letter for each part. Numbers and texts arrive as variadic arguments
/// of C: most functions of spar contain error messages, which every user compiles, and each part costs the compiler one
/// argument in place of an object.
[[gnu::cold]] std::size_t write_parts(char* to, std::size_t room, const char* kinds, va_list parts) noexcept;

/// Joins the parts of a sentence in memory that the caller must free.
[[nodiscard, gnu::cold]] char* join_parts(const char* kinds, ...);

/// Returns what is passed for `part` to a function with variadic arguments, which objects of classes cannot be.
template <class Part>
auto as_argument(const Part& part) noexcept {
  if constexpr (std::same_as<Part, std::string>)
    return part.c_str();
  else if constexpr (std::same_as<Part, std::string_view>)
    return &part;
  else
    return part;
}

/// A sentence that is joined from its parts, for `raise`, which frees the memory. Without a destructor, the code at the
/// many call sites of `raise` is small.
struct raised_sentence {
  template <class... Parts>
  raised_sentence(Parts... parts) {
    if constexpr ((std::is_class_v<Parts> || ...))
      text = join_parts(kinds_of_parts<Parts...>, as_argument(parts)...);
    else
      text = join_parts(kinds_of_parts<Parts...>, parts...);
  }

  char* text;
};

/// A text that is joined from parts. Used instead of std::string to keep compile times short: in C++20, each program
/// compiles the code of std::string anew.
class joined_text {
 public:
  explicit joined_text(raised_sentence sentence) noexcept : text_(sentence.text) {}
  template <class... Parts>
  joined_text(Parts... parts) : joined_text(raised_sentence(parts...)) {}
  joined_text(const joined_text&) = delete;
  [[gnu::cold]] ~joined_text() { std::free(text_); }

  template <class... Parts>
  void add(Parts... parts) {
    std::free(std::exchange(text_, raised_sentence(text_, parts...).text));
  }
  [[nodiscard]] const char* c_str() const noexcept { return text_; }

 private:
  char* text_;
};

} // namespace detail

/// Joins the `parts` into one string, such as an error message. A part is a number, a text that ends with a zero, a
/// std::string or a std::string_view.
template <class... Parts>
std::string sentence(Parts... parts) {
  return detail::joined_text(parts...).c_str();
}

/// Throws an exception of type `Error` whose message is `sentence`, a list in braces of texts and numbers: see
/// `sentence`.
template <class Error>
[[noreturn, gnu::cold]] void raise(detail::raised_sentence sentence) {
  const detail::joined_text text(sentence);
  throw Error(text.c_str());
}

/// Base class of all exception types that spar defines.
struct error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Thrown if a program passes an invalid argument. A collective checks its arguments before it sends any message, but
/// may detect only later that the storage cannot encode a value.
struct invalid_argument : error {
  using error::error;
};

/// Thrown if the ranks of a call disagree on the dimension, the types, the algorithm, its options, the root or the
/// operation, or if they disagreed in an earlier call in which no rank compared anything.
/// How to go on: docs/guide/errors.md, "After a mismatch or a timeout".
struct mismatch : error {
  using error::error;
};

/// Thrown if a received message contains bytes that no correctly working rank sends, for example a wrong checksum.
struct corrupt_message : error {
  using error::error;
};

/// Thrown by a call if a rank of the communicator has failed, before or during the call. After a failure, no collective
/// works on the communicator any more.
struct peer_failed : error {
  using error::error;
};

/// Thrown by a call if an awaited message does not arrive, or a sent message is not received, within the deadline. How
/// to go on: docs/guide/errors.md, "After a mismatch or a timeout".
struct timeout : error {
  using error::error;
};

/// Thrown by the simulator if no rank can make progress any more, and over MPI if a rank would wait although it has no
/// call or message in flight. Other deadlocks over MPI or between threads end in `timeout`.
struct deadlock : error {
  using error::error;
};

/// Thrown if the layer below spar reports an error, that is, if an MPI call fails.
struct transport_error : error {
  using error::error;
};

/// Thrown by `ensure` if an invariant of spar does not hold, because of a bug in spar or in a user-defined policy.
struct assertion_failed : error {
  using error::error;
};

/// Throws `assertion_failed` with the message `sentence` if `condition` is false. For conditions that cost a few
/// instructions for each message: they are compiled into every program, whatever its macros are, because parts of one
/// program that are compiled with different macros must have the same functions.
constexpr void ensure(bool condition, const char* sentence) {
  if (!condition) raise<assertion_failed>({sentence});
}

} // namespace spar::inline v0_1

#ifndef SPAR_COMPILED
#include <spar/core/error-inl.hpp>
#endif
