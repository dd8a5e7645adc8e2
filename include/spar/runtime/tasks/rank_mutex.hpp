// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The mutex that an application's thread and the progress thread of a rank share.
#pragma once

#include <spar/core/compiler.hpp>
#include <spar/core/util/atomic.hpp>

#include <mutex>

#include <sched.h>

namespace spar::inline v0_1::detail {

/// A mutex that counts the threads that wait for it.
class rank_mutex {
 public:
  void lock() {
    wanting_ += 1;
    mutex_.lock();
    wanting_ += -1;
  }
  void unlock() { mutex_.unlock(); }
  /// Yields the processor until no thread waits for the mutex. A mutex is not fair: a thread that locks it again at
  /// once could keep other threads waiting.
  void yield_to_waiters() const noexcept {
    while (wanting_ > 0) sched_yield();
  }

 private:
  std::mutex mutex_;
  atomic<int> wanting_ = 0;
};

/// Locks the mutex of a rank for a scope. Does nothing if `shared` is null, that is, if the rank has only one thread.
class rank_lock {
 public:
  explicit rank_lock(rank_mutex* shared) : shared_(shared) {
    if (shared_ != nullptr) shared_->lock();
  }
  rank_lock(const rank_lock&) = delete;
  ~rank_lock() {
    if (shared_ != nullptr) shared_->unlock();
  }

 private:
  rank_mutex* shared_;
};

} // namespace spar::inline v0_1::detail
