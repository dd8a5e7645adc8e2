// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The sends and receives of the transport over NCCL, and the error that ends all of a call.
#pragma once

#include <spar/core/error.hpp>
#include <spar/runtime/messages/message.hpp>
#include <spar/runtime/tasks/task.hpp>

#include <coroutine>
#include <exception>
#include <utility>

namespace spar::detail {

/// The error of the first operation that has failed on this rank, and the tag of this operation.
class nccl_failure {
 public:
  /// Called with the exception that ends an operation.
  void note(tag_t tag) {
    if (first_) return;
    first_ = std::current_exception();
    tag_ = tag;
  }
  /// Throws the error if it ended an operation of the same call.
  void rethrow(tag_t tag) const {
    if (first_ && sequence_of(tag_) == sequence_of(tag)) std::rethrow_exception(first_);
  }

 private:
  std::exception_ptr first_;
  tag_t tag_ = 0;
};

/// A send or a receive, which is a coroutine. Awaited through constant references by the awaiters that wrap it.
class [[nodiscard]] nccl_operation {
 public:
  nccl_operation(const nccl_failure& failed, tag_t tag, task<void>&& work) noexcept
      : failed_(&failed), tag_(tag), work_(std::move(work)) {}
  [[nodiscard]] bool await_ready() const noexcept { return work_.await_ready(); }
  void await_suspend(std::coroutine_handle<> waiting) const noexcept { work_.await_suspend(waiting); }
  /// If another operation of the same call has failed on this rank, throws its error instead of `peer_failed`.
  void await_resume() const {
    try {
      work_.await_resume();
    } catch (const peer_failed&) {
      failed_->rethrow(tag_);
      throw;
    }
  }

 private:
  const nccl_failure* failed_;
  tag_t tag_;
  mutable task<void> work_;
};

} // namespace spar::detail
