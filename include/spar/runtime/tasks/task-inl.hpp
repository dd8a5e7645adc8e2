// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of task.hpp that do not depend on the type of values.
#pragma once

#include <spar/runtime/tasks/task.hpp>

namespace spar::inline v0_1 {

namespace detail {

SPAR_INLINE void promise_base::unhandled_exception() noexcept {
  error_ = std::current_exception();
  if (call_ != nullptr) call_->note(); // before the callers of the coroutine unwind
}

SPAR_INLINE void promise_base::throw_taken() {
  raise<invalid_argument>({"the result of this call was already taken; wait() or co_await gives it only once, so "
                           "keep it in a variable"});
}

SPAR_INLINE void promise_base::end(std::coroutine_handle<> self) noexcept {
  scheduler* const ready = finished_ ? nullptr : scheduler_;
  // The scheduler must not resume `self`: destructors in the frame may make progress and so run the scheduler.
  if (ready != nullptr) ready->forget(self);
  self.destroy();
  if (ready == nullptr) return;
  // Removes `self` again: by cancelling one operation, a destructor may have ended another, and so made `self` ready.
  ready->forget(self);
  ready->leave();
}

[[gnu::noinline]] SPAR_INLINE void* promise_base::allocate(std::size_t size, scheduler& ready) {
  ready.make_room();
  pool& memory = ready.memory();
  auto* p = static_cast<std::byte*>(memory.allocate(size + frame_prefix, frame_prefix));
  ::new (p) prefix{&memory, size + frame_prefix};
  return p + frame_prefix;
}

SPAR_INLINE void promise_base::throw_error() const { std::rethrow_exception(error_); }

[[gnu::noinline]] SPAR_INLINE void promise_base::operator delete(void* frame, std::size_t) noexcept {
  auto* p = static_cast<std::byte*>(frame) - frame_prefix;
  const prefix kept = *reinterpret_cast<prefix*>(p);
  kept.memory->deallocate(p, kept.size, frame_prefix);
}

} // namespace detail

} // namespace spar::inline v0_1
