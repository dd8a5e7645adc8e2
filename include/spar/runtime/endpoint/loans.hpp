// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tracks send buffers of failed calls that peers still read.
#pragma once

#include <spar/core/memory/pool.hpp>
#include <spar/runtime/tasks/scheduler.hpp>
#include <spar/runtime/tasks/wait_list.hpp>

#include <coroutine>
#include <cstddef>

namespace spar::detail {

/// A failed call unwinds without waiting for the peers that read its send buffers, because these peers may also be
/// unwinding and waiting for this rank. The pool keeps the memory unchanged until the last peer has finished reading,
/// and no failed call returns earlier. A rank waits for this only after it has aborted the communicator.
class loans {
 public:
  [[nodiscard]] bool any() const noexcept { return count_ > 0; }
  /// Call this when a failed call unwinds while a peer still reads one of its buffers.
  void begin(pool& memory) noexcept {
    ++count_;
    memory.hold();
  }
  /// Call this when the peer has finished reading.
  void end(pool& memory, scheduler& ready) noexcept {
    if (--count_ > 0) return;
    memory.release();
    while (operation_record* r = waiting_.first()) r->wake(ready);
  }
  /// Resumes a coroutine once no peer reads.
  void await(operation_record& r, std::coroutine_handle<> waiting) noexcept { waiting_.add(r, waiting); }

 private:
  std::size_t count_ = 0; // messages that peers still read
  waiting_list waiting_;
};

} // namespace spar::detail
