// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The errors that spar throws; each message is one sentence that names the values.
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

/// A piece of an error's sentence. Numbers become text in one place, in the plainest way: sentences stand in many
/// functions, and every user compiles them.
class sentence_part {
 public:
  sentence_part(const char* text) noexcept : kind_(kind::text), text_(text) {}
  sentence_part(const std::string& text) noexcept : kind_(kind::text), text_(text.c_str()) {}
  sentence_part(double x) noexcept : kind_(kind::real), real_(x) {}
  template <std::signed_integral Number>
  sentence_part(Number x) noexcept : kind_(kind::signed_number), signed_(x) {}
  template <std::unsigned_integral Number>
  sentence_part(Number x) noexcept : kind_(kind::number), number_(x) {}

  /// Writes at most `room` characters and returns how many it has.
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

[[gnu::noinline, gnu::cold]] inline std::string join_sentence(std::initializer_list<sentence_part> parts) {
  std::size_t length = 0;
  for (const sentence_part& p : parts) length += static_cast<std::size_t>(p.write(nullptr, 0));
  std::string all(length, '\0'); // and one more at the end, which is written again
  char* to = all.data();
  for (const sentence_part& p : parts) to += p.write(to, static_cast<std::size_t>(all.data() + length + 1 - to));
  return all;
}

} // namespace detail

/// The parts, texts and numbers, as one string.
template <class... Parts>
std::string sentence(const Parts&... parts) {
  return detail::join_sentence({detail::sentence_part(parts)...});
}

/// Throws an `Error` whose sentence is the parts, texts and numbers. What stands where it is called is as little as can
/// be: there are such calls in most functions.
template <class Error>
[[noreturn, gnu::noinline, gnu::cold]] void raise(std::initializer_list<detail::sentence_part> parts) {
  throw Error(detail::join_sentence(parts));
}

/// Base of every error of the library.
struct error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A caller's mistake, found before any message is sent.
struct invalid_argument : error {
  using error::error;
};

/// Two ranks disagree on what they are computing.
struct mismatch : error {
  using error::error;
};

/// Bytes that arrived are not what a rank of this library sends.
struct corrupt_message : error {
  using error::error;
};

/// Another rank failed while this one was waiting, or before: the communicator is dead.
struct peer_failed : error {
  using error::error;
};

/// A message stayed away for longer than the deadline.
struct timeout : error {
  using error::error;
};

/// No rank can make progress any more (the simulator knows; other transports cannot).
struct deadlock : error {
  using error::error;
};

/// The layer below (an MPI call, an allocation of device memory) reported an error.
struct transport_error : error {
  using error::error;
};

/// What an exception says.
[[gnu::noinline, gnu::cold]] inline std::string message_of(const std::exception_ptr& why) {
  try {
    std::rethrow_exception(why);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

} // namespace spar
