// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The exceptions that spar throws. Each message is one sentence that contains the values concerned.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdio>
#include <exception>
#include <initializer_list>
#include <stdexcept>
#include <string>

namespace spar {

namespace detail {

/// A part of an error message, a text or a number. All numbers are formatted by this one class with `snprintf`: most
/// functions contain error messages, and every user compiles them.
class sentence_part {
 public:
  sentence_part(const char* text) noexcept : kind_(kind::text), text_(text) {}
  sentence_part(const std::string& text) noexcept : kind_(kind::text), text_(text.c_str()) {}
  sentence_part(double x) noexcept : kind_(kind::real), real_(x) {}
  template <std::signed_integral Number>
  sentence_part(Number x) noexcept : kind_(kind::signed_number), signed_(x) {}
  template <std::unsigned_integral Number>
  sentence_part(Number x) noexcept : kind_(kind::number), number_(x) {}

  /// Writes at most `room` characters, including the terminating zero. Returns the full length of the part.
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
  std::string all(length, '\0'); // the last `snprintf` writes its zero over the string's own terminator
  char* to = all.data();
  for (const sentence_part& p : parts) to += p.write(to, static_cast<std::size_t>(all.data() + length + 1 - to));
  return all;
}

} // namespace detail

/// Joins texts and numbers into one string.
template <class... Parts>
std::string sentence(const Parts&... parts) {
  return detail::join_sentence({detail::sentence_part(parts)...});
}

/// Throws an `Error` whose message joins `parts`, texts and numbers. Out of line, to keep the many call sites small.
template <class Error>
[[noreturn, gnu::cold]] void raise(std::initializer_list<detail::sentence_part> parts) {
  throw Error(detail::join_sentence(parts));
}

/// Base of all errors of the library.
struct error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The caller passed an invalid argument. Thrown before the call sends any message.
struct invalid_argument : error {
  using error::error;
};

/// Two ranks disagree on what they compute.
struct mismatch : error {
  using error::error;
};

/// A received message contains bytes that no rank of this library sends.
struct corrupt_message : error {
  using error::error;
};

/// Another rank failed, during this call or before it. The communicator is dead.
struct peer_failed : error {
  using error::error;
};

/// An awaited message did not arrive, or a message that was sent was not received, before the deadline.
struct timeout : error {
  using error::error;
};

/// No rank can make progress any more. Only the simulator can detect this.
struct deadlock : error {
  using error::error;
};

/// The layer below (an MPI call, an allocation of device memory) reported an error.
struct transport_error : error {
  using error::error;
};

/// Returns the message of an exception.
[[gnu::cold]] inline std::string message_of(const std::exception_ptr& why) {
  try {
    std::rethrow_exception(why);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception that is not derived from std::exception";
  }
}

} // namespace spar
