// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The queue of ready coroutines of a rank, which are resumed one after another from one place.
#pragma once

#include <spar/core/memory/buffer.hpp>
#include <spar/core/memory/pool.hpp>

#include <coroutine>
#include <cstddef>
#include <cstring>
#include <memory_resource>
#include <utility>

namespace spar {

/// Each rank has one, which its transport returns. Coroutines are resumed here and nowhere else: symmetric transfer is
/// not a tail call without optimisation or under a sanitizer, whereas a queue keeps the stack flat. Only one thread at
/// a time may use it.
class scheduler {
 public:
  explicit scheduler(pool& memory) : memory_(&memory) {}
  scheduler(const scheduler&) = delete;

  [[nodiscard]] pool& memory() const noexcept { return *memory_; }

  /// Appends a suspended coroutine to the queue.
  [[gnu::noinline]] void post(std::coroutine_handle<> ready) {
    if (end_ == queue_.size()) {
      buffer<std::coroutine_handle<>> larger(heap(), 2 * end_);
      std::memcpy(static_cast<void*>(larger.data()), queue_.data(), end_ * sizeof(ready));
      queue_ = std::move(larger);
    }
    queue_.data()[end_++] = ready;
  }

  /// Removes a coroutine that is about to be destroyed.
  void forget(std::coroutine_handle<> gone) noexcept {
    for (auto& ready : queue_.span().subspan(next_, end_ - next_))
      if (ready == gone) ready = std::noop_coroutine();
  }

  /// Resumes ready coroutines, including those that become ready meanwhile, until the queue is empty.
  void run() {
    const bool within = std::exchange(running_, true);
    while (next_ < end_ && !paused_) {
      const auto ready = queue_.data()[next_++];
      if (next_ == end_) next_ = end_ = 0; // keeps the capacity: allocates nothing in the steady state
      ready.resume();
    }
    running_ = within;
  }
  /// Whether a coroutine is being resumed.
  [[nodiscard]] bool running() const noexcept { return running_; }

  /// Whether there is nothing to resume.
  [[nodiscard]] bool idle() const noexcept { return next_ == end_ || paused_; }

  /// While an object of this class exists, coroutines can become ready, but none is resumed. For a coroutine that must
  /// wait for another rank without being suspended.
  class pause {
   public:
    explicit pause(scheduler& its) noexcept : its_(&its), before_(std::exchange(its.paused_, true)) {}
    pause(const pause&) = delete;
    ~pause() { its_->paused_ = before_; }

   private:
    scheduler* its_;
    bool before_;
  };

 private:
  static std::pmr::memory_resource& heap() { return *std::pmr::new_delete_resource(); }

  pool* memory_;
  buffer<std::coroutine_handle<>> queue_{heap(), 16}; // the ready coroutines are in [next_, end_)
  std::size_t next_ = 0;
  std::size_t end_ = 0;
  bool running_ = false;
  bool paused_ = false;
};

} // namespace spar
