// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tracks send buffers of failed calls that peers still read.
#pragma once

#include <spar/core/memory/pool.hpp>
#include <spar/runtime/tasks/operation_record.hpp>
#include <spar/runtime/tasks/scheduler.hpp>

#include <coroutine>
#include <cstddef>

namespace spar::inline v0_1::detail {

/// Counts the send buffers of failed calls that peers still read. A peer may also be unwinding, and wait for this rank.
/// So a failed call unwinds without waiting for these peers. The pool keeps the memory of the buffers
/// unchanged, and no failed call returns, until the last peer has finished reading. A rank waits for the peers only
/// after it has aborted the communicator.
class loans {
 public:
  [[nodiscard]] bool any() const noexcept { return count_ > 0; }
  /// Adds a send buffer to the count. To be called when a failed call unwinds while a peer still reads the buffer.
  void begin(pool& memory) noexcept {
    ++count_;
    memory.hold();
  }
  /// Removes a send buffer from the count. To be called when the peer has finished reading the buffer.
  void end(pool& memory, scheduler& ready) noexcept {
    if (--count_ > 0) return;
    memory.release();
    while (operation_record* r = waiting_.first()) r->wake(ready);
  }
  /// Makes `end` resume the coroutine `waiting` when the count reaches 0. To be called only if `any()` is true. `r` is
  /// the record of the wait.
  void await(operation_record& r, std::coroutine_handle<> waiting) noexcept { waiting_.add(r, waiting); }

 private:
  std::size_t count_ = 0; // send buffers that peers still read
  waiting_list waiting_;
};

} // namespace spar::inline v0_1::detail
