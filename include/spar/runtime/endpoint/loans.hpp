// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Send buffers of failed calls that peers still read.
#pragma once

#include <spar/core/memory/pool.hpp>
#include <spar/runtime/tasks/scheduler.hpp>
#include <spar/runtime/tasks/wait_list.hpp>

#include <coroutine>
#include <cstddef>

namespace spar::detail {

/// A call that fails unwinds without waiting for the peers that read its send buffers: these peers may be unwinding
/// too, and wait for this rank. The pool keeps the memory as it is until the last peer has finished reading, and no
/// failed call returns before. Whoever waits for that has aborted the communicator.
class loans {
 public:
  [[nodiscard]] bool any() const noexcept { return count_ > 0; }
  /// A peer still reads a buffer of a failed call.
  void begin(pool& memory) noexcept {
    ++count_;
    memory.hold();
  }
  /// The peer has finished reading.
  void end(pool& memory, scheduler& ready) noexcept {
    if (--count_ > 0) return;
    memory.release();
    while (operation_record* r = waiting_.first()) r->wake(ready);
  }
  /// Resumes a coroutine once no peer reads.
  void await(operation_record& r, std::coroutine_handle<> waiting) noexcept { waiting_.add(r, waiting); }

 private:
  std::size_t count_ = 0; // messages
  waiting_list waiting_;
};

} // namespace spar::detail
