// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of scheduler.hpp that do not depend on the type of values.
#pragma once

#include <spar/runtime/tasks/scheduler.hpp>

namespace spar::inline v0_1 {

[[gnu::noinline]] SPAR_INLINE void scheduler::post(std::coroutine_handle<> ready) {
  if (end_ == queue_.size()) compact();
  queue_.data()[end_++] = ready;
}

SPAR_INLINE void scheduler::forget(std::coroutine_handle<> gone) noexcept {
  std::coroutine_handle<>* const queue = queue_.data();
  std::size_t kept = next_;
  for (std::size_t i = next_; i < end_; ++i) {
    if (queue[i] != gone) queue[kept++] = queue[i];
  }
  end_ = kept;
}

SPAR_INLINE void scheduler::run() {
  if (polls()) poll();
  const bool within = std::exchange(running_, true);
  while (next_ < end_ && !paused_) {
    const auto ready = queue_.data()[next_++];
    if (next_ == end_) next_ = end_ = 0; // reuses the space of resumed coroutines, so that the queue seldom grows
    ready.resume();
  }
  running_ = within;
}

[[gnu::noinline]] SPAR_INLINE void scheduler::poll() const {
  for (detail::link* next = &polled_.after(); next != &polled_;) {
    const auto& work = static_cast<const detail::polled_work&>(*next);
    next = &next->after(); // `work` leaves the ring if no coroutine waits for it any more
    work.poll();
  }
}

SPAR_INLINE void scheduler::grow() {
  buffer<std::coroutine_handle<>> larger(heap(), 2 * queue_.size());
  std::memcpy(static_cast<void*>(larger.data()), queue_.data(), end_ * sizeof(std::coroutine_handle<>));
  queue_ = std::move(larger);
  room_ = queue_.size() / 2 - spare;
}

SPAR_INLINE void scheduler::compact() {
  if (next_ == 0) return grow();
  end_ -= next_;
  std::memmove(static_cast<void*>(queue_.data()), queue_.data() + next_, end_ * sizeof(std::coroutine_handle<>));
  next_ = 0;
}

} // namespace spar::inline v0_1
