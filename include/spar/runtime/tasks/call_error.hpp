// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The error of a call, several of whose coroutines may fail.
#pragma once

#include <spar/core/error.hpp>

#include <exception>

namespace spar::inline v0_1::detail {

/// The error of a call on one rank. Each coroutine of the call that ends in an exception notes it here (see `task`),
/// and the first one at once becomes the reason for which the call fails on all ranks. So no algorithm must abort, and
/// a rank that unwinds a call, and may need other ranks for it, has already told them why.
class call_error {
 public:
  /// From now on, `note` calls `abort(net, why)`, which aborts the communicator.
  void abort_by(void (*abort)(void* net, const std::exception_ptr& why) noexcept, void* net) noexcept {
    abort_ = abort;
    net_ = net;
  }

  /// From now on, `note` does not abort. Called before an error that all ranks throw alike, when no rank waits for a
  /// message of the call any more; the communicator stays usable.
  void is_thrown_by_all() noexcept { abort_ = nullptr; }

  /// Stores the exception that is being handled and aborts, unless a stored exception is its cause: the first one is
  /// the cause of all later ones. But any other exception takes the place of `peer_failed`: the coroutine that has
  /// failed may wait for its turn while the others already learn that the communicator is dead.
  [[gnu::cold]] void note() noexcept;
  /// Whether an exception is stored.
  [[nodiscard]] bool is_noted() const noexcept { return error_ != nullptr; }
  /// Throws the stored exception.
  [[noreturn, gnu::cold]] void rethrow() const { std::rethrow_exception(error_); }

 private:
  std::exception_ptr error_;
  void (*abort_)(void* net, const std::exception_ptr& why) noexcept = nullptr;
  void* net_ = nullptr;
  bool caused_here_ = false; // whether the stored exception is not `peer_failed`
};

} // namespace spar::inline v0_1::detail

#ifndef SPAR_COMPILED
#include <spar/runtime/tasks/call_error-inl.hpp>
#endif
