// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A list of the operations that the coroutines of a rank await, in the order in which the waits began.
#pragma once

#include <spar/core/memory/link.hpp>
#include <spar/runtime/tasks/operation_record.hpp>

#include <coroutine>

namespace spar::detail {

/// A list of the operations that the coroutines of a rank await; the longest awaited operation is the first.
class waiting_list {
 public:
  void add(operation_record& r, std::coroutine_handle<> waiting) noexcept {
    r.waiting = waiting;
    r.since = -1;
    r.asked = 0;
    r.join_before(ring_);
  }
  [[nodiscard]] operation_record* first() const noexcept { return at(ring_.after()); }
  /// `after(r)` is the operation added next after `r`, `before(r)` the operation added last before `r`, and `last()`
  /// the operation added last. Each returns null if there is no such operation.
  [[nodiscard]] operation_record* after(const operation_record& r) const noexcept { return at(r.after()); }
  [[nodiscard]] operation_record* last() const noexcept { return at(ring_.before()); }
  [[nodiscard]] operation_record* before(const operation_record& r) const noexcept { return at(r.before()); }

 private:
  [[nodiscard]] operation_record* at(link& l) const noexcept {
    return &l == &ring_ ? nullptr : static_cast<operation_record*>(&l);
  }
  link ring_;
};

} // namespace spar::detail
