// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The errors that spar throws; each message is one sentence that names the values.
#pragma once

#include <concepts>
#include <initializer_list>
#include <stdexcept>
#include <string>

namespace spar {

namespace detail {

/// A piece of an error's sentence. Numbers become text in one place that is compiled once, not wherever an error is
/// thrown.
class sentence_part {
 public:
  sentence_part(const char* text) noexcept : kind_(kind::text), text_(text) {}
  sentence_part(const std::string& text) noexcept : kind_(kind::text), text_(text.c_str()) {}
  sentence_part(double x) noexcept : kind_(kind::real), real_(x) {}
  template <std::signed_integral Number>
  sentence_part(Number x) noexcept : kind_(kind::signed_number), signed_(x) {}
  template <std::unsigned_integral Number>
  sentence_part(Number x) noexcept : kind_(kind::number), number_(x) {}

  void append_to(std::string& all) const {
    switch (kind_) {
    case kind::text:
      all += text_;
      break;
    case kind::real:
      all += std::to_string(real_);
      break;
    case kind::signed_number:
      all += std::to_string(signed_);
      break;
    case kind::number:
      all += std::to_string(number_);
      break;
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
  std::string all;
  for (const sentence_part& p : parts) p.append_to(all);
  return all;
}

} // namespace detail

/// The parts, texts and numbers, as one string.
template <class... Parts>
std::string sentence(const Parts&... parts) {
  return detail::join_sentence({detail::sentence_part(parts)...});
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

/// Another rank failed while this one was waiting.
struct peer_failed : error {
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

} // namespace spar
