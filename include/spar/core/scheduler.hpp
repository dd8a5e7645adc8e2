// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The ready queue of one rank: coroutines whose wait is over, resumed one after the other from one place.
#pragma once

#include <spar/core/pool.hpp>

#include <algorithm>
#include <coroutine>
#include <cstddef>
#include <vector>

namespace spar {

/// Each rank has one, reached through its transport. Coroutines are resumed here and nowhere else: symmetric transfer
/// is not a tail call without optimisation or under a sanitizer, and a queue keeps the stack flat. Used by one thread
/// at a time.
class scheduler {
 public:
  explicit scheduler(pool& memory) : memory_(&memory) { queue_.reserve(16); }
  scheduler(const scheduler&) = delete;

  [[nodiscard]] pool& memory() const noexcept { return *memory_; }

  /// Makes a suspended coroutine ready.
  [[gnu::noinline]] void post(std::coroutine_handle<> ready) { queue_.push_back(ready); }

  /// Takes back a coroutine that is about to be destroyed.
  [[gnu::noinline]] void forget(std::coroutine_handle<> gone) noexcept {
    const auto first = queue_.begin() + static_cast<std::ptrdiff_t>(next_);
    std::replace(first, queue_.end(), gone, std::coroutine_handle<>(std::noop_coroutine()));
  }

  /// Resumes until nothing is ready; those that become ready meanwhile are resumed as well.
  void run() {
    while (next_ < queue_.size()) {
      const auto ready = queue_[next_++];
      if (next_ == queue_.size()) {
        queue_.clear(); // keeps the capacity: nothing is allocated in the steady state
        next_ = 0;
      }
      ready.resume();
    }
  }

  [[nodiscard]] bool idle() const noexcept { return next_ == queue_.size(); }

 private:
  pool* memory_;
  std::vector<std::coroutine_handle<>> queue_;
  std::size_t next_ = 0;
};

} // namespace spar
