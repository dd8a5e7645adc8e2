// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The exceptions that spar throws. The message of each exception is one sentence that contains the values that caused
// the error.
#pragma once

#include <spar/core/compiler.hpp>

#include <concepts>
#include <cstddef>
#include <cstdio>
#include <initializer_list>
#include <stdexcept>
#include <string>

namespace spar {

namespace detail {

/// A part of an error message: a text or a number. Formats numbers with `snprintf` to keep compile times short: most
/// functions of spar contain error messages, and every user compiles these functions.
class sentence_part {
 public:
  sentence_part(const char* text) noexcept : kind_(kind::text), text_(text) {}
  sentence_part(const std::string& text) noexcept : kind_(kind::text), text_(text.c_str()) {}
  sentence_part(double x) noexcept : kind_(kind::real), real_(x) {}
  template <std::signed_integral Number>
  sentence_part(Number x) noexcept : kind_(kind::signed_number), signed_(x) {}
  template <std::unsigned_integral Number>
  sentence_part(Number x) noexcept : kind_(kind::number), number_(x) {}

  /// Writes the part to `to`, truncated to `room` characters including the terminating zero. Returns the length of the
  /// whole part in characters.
  [[nodiscard]] int write(char* to, std::size_t room) const noexcept {
    switch (kind_) {
    case kind::text:
      return std::snprintf(to, room, "%s", text_);
    case kind::real:
      return std::snprintf(to, room, "%g", real_);
    case kind::signed_number:
      return std::snprintf(to, room, "%lld", signed_);
    default:
      return std::snprintf(to, room, "%llu", number_);
    }
  }

 private:
  enum class kind { text, real, signed_number, number } kind_;
  union {
    const char* text_;
    double real_;
    long long signed_;
    unsigned long long number_;
  };
};

[[gnu::cold]] inline std::string join_sentence(std::initializer_list<sentence_part> parts) {
  std::size_t length = 0;
  for (const sentence_part& p : parts) length += static_cast<std::size_t>(p.write(nullptr, 0));
  std::string all(length, '\0'); // `snprintf` ends the last part with a zero, at all[length]
  char* to = all.data();
  for (const sentence_part& p : parts) to += p.write(to, static_cast<std::size_t>(all.data() + length + 1 - to));
  return all;
}

} // namespace detail

/// Joins texts and numbers, the `parts`, into one string, such as an error message.
template <class... Parts>
std::string sentence(const Parts&... parts) {
  return detail::join_sentence({detail::sentence_part(parts)...});
}

/// Throws an exception of type `Error` whose message consists of `parts`, which are texts and numbers. This is a
/// separate function to keep the code at the many call sites small.
template <class Error>
[[noreturn, gnu::cold]] void raise(std::initializer_list<detail::sentence_part> parts) {
  throw Error(detail::join_sentence(parts));
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

} // namespace spar
