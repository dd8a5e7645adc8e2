// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which error a call reports if several of its concurrent coroutines fail.
#pragma once

#include <spar/core/error.hpp>

#include <exception>

namespace spar::detail {

/// The first error of several coroutines, because it is the cause of all later errors. But any other error takes the
/// place of `peer_failed`: the coroutine that has failed may wait for its turn while the others already learn that the
/// communicator is dead.
class first_error {
 public:
  /// Stores the exception that is being handled, unless a stored exception is its cause.
  [[gnu::cold]] void note() noexcept {
    try {
      throw;
    } catch (const peer_failed&) {
      if (!error_) error_ = std::current_exception();
    } catch (...) {
      if (!caused_here_) error_ = std::current_exception();
      caused_here_ = true;
    }
  }
  /// Throws the stored error, if any.
  void rethrow() const {
    if (error_) throw_error();
  }

 private:
  [[noreturn, gnu::cold]] void throw_error() const { std::rethrow_exception(error_); }

  std::exception_ptr error_;
  bool caused_here_ = false; // whether the stored error is not `peer_failed`
};

} // namespace spar::detail
