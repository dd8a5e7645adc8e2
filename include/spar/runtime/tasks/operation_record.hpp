// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The part of the record of a send or a receive that is common to all transports. A transport that completes an
// operation resumes the coroutine that awaits the operation. Also lists such records.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/memory/link.hpp>
#include <spar/runtime/tasks/scheduler.hpp>

#include <coroutine>
#include <cstdint>
#include <exception>
#include <utility>

namespace spar::inline v0_1 {

/// The base class of the records in which transports keep their sends and receives. Only the rank that started an
/// operation changes the members of this class.
struct operation_record : detail::link {
  bool done = false;               ///< whether the operation has ended; `error` says how
  bool receives = false;           ///< whether the operation is a receive
  rank_t peer = 0;                 ///< the source of a receive, the destination of a send
  tag_t tag = 0;                   ///< the tag of the message
  double since = -1;               ///< time in seconds of the first check after the wait began; -1 before this check
  std::uint8_t asked = 0;          ///< number of descriptions of the call that the rank has sent to the peer
  std::exception_ptr error;        ///< the error with which the operation has ended; null if there is none
  std::coroutine_handle<> waiting; ///< the coroutine that awaits the operation; null if there is none

  /// Prepares the record for an operation that starts: `is_receive`, `other` and `its_tag` become `receives`, `peer`
  /// and `tag`.
  void begin(bool is_receive, rank_t other, tag_t its_tag) noexcept {
    done = false;
    receives = is_receive;
    peer = other;
    tag = its_tag;
    error = nullptr;
  }
  /// Puts the waiting coroutine, if any, into the queue `ready`, even if the operation has not ended.
  void wake(scheduler& ready) {
    if (!waiting) return;
    leave();
    ready.post(std::exchange(waiting, nullptr));
  }
  /// Ends the operation without an error, and puts the waiting coroutine, if any, into the queue `ready`.
  void complete(scheduler& ready) {
    done = true;
    wake(ready);
  }
  /// Ends the operation with the error `why`, and puts the waiting coroutine, if any, into the queue `ready`.
  void fail(scheduler& ready, std::exception_ptr why) {
    error = std::move(why);
    complete(ready);
  }
  /// Removes the waiting coroutine, which is being destroyed, from this record.
  void forget() noexcept {
    if (!waiting) return;
    leave();
    waiting = nullptr;
  }
};

namespace detail {

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

} // namespace detail

} // namespace spar::inline v0_1
