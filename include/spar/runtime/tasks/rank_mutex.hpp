// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The application's thread and a progress thread use a rank by turns.
#pragma once

#include <atomic>
#include <mutex>

#include <sched.h>

namespace spar::detail {

/// A mutex whose holder can see that others want it.
class rank_mutex {
 public:
  void lock() {
    ++wanting_;
    mutex_.lock();
    --wanting_;
  }
  void unlock() { mutex_.unlock(); }
  /// Lets others have their turn first, as mutexes are not fair.
  void yield_to_waiters() const noexcept {
    while (wanting_ > 0) sched_yield();
  }

 private:
  std::mutex mutex_;
  std::atomic<int> wanting_ = 0;
};

/// Holds the turn for a scope; does nothing where there is only one thread.
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

} // namespace spar::detail
