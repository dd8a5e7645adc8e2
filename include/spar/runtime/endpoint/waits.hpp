// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The operations that the coroutines of a rank await, and the deadline after which an operation fails with `timeout`.
// When an operation ends, the transport resumes the waiting coroutine by `operation_record::complete`
// (tasks/operation_record.hpp). The class `waits` resumes a coroutine only after a deadline, a mismatch or the failure
// of a rank.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/messages/call_names.hpp>
#include <spar/runtime/tasks/operation_record.hpp>
#include <spar/runtime/tasks/scheduler.hpp>

#include <coroutine>
#include <cstdint>
#include <exception>

namespace spar::inline v0_1::detail {

class waits {
 public:
  /// Adds the operation `r`, which has a deadline and which the coroutine `waiting` awaits.
  void await(operation_record& r, std::coroutine_handle<> waiting) noexcept { active_.add(r, waiting); }
  [[nodiscard]] bool any() const noexcept { return active_.first() != nullptr; }
  /// The awaited operations that have a deadline, the longest awaited first.
  [[nodiscard]] waiting_list& active() noexcept { return active_; }

  /// Adds the operation `r`, which has no deadline, because a peer may take arbitrarily long to complete it.
  void await_idly(operation_record& r, std::coroutine_handle<> waiting) noexcept { idle_.add(r, waiting); }
  [[nodiscard]] bool any_idle() const noexcept { return idle_.first() != nullptr; }

  /// The number of seconds for which a coroutine may await an operation before the operation fails with `timeout`.
  [[nodiscard]] double deadline() const noexcept { return deadline_; }
  void set_deadline(double seconds) noexcept { deadline_ = seconds; }

  /// Resumes all waiting coroutines because the communicator has died.
  void wake_all(scheduler& ready) noexcept;
  /// Makes the longest awaited operation of the call with the number `*sequence`, or of any call if `sequence` is null,
  /// fail with the error `why`. Returns false if none is awaited.
  bool fail_one(const std::uint64_t* sequence, const std::exception_ptr& why, scheduler& ready);

  /// Makes the longest awaited operation fail with the error `why`. Returns false if no operation is awaited.
  bool fail_longest(const std::exception_ptr& why, scheduler& ready);

  /// The time at which a wait of the program ends, also if its call has not.
  [[nodiscard]] double program_waits_until() const noexcept { return program_waits_until_; }
  void set_program_waits_until(double time) noexcept { program_waits_until_ = time; }

  /// Timestamps new waits with `now`, calls `expired(r)` for the longest awaited operation `r` if its deadline has
  /// expired, and returns the time of the next deadline, or of the end of the program's wait. Times are in seconds.
  template <class Expired>
  double expire(double now, Expired expired) {
    for (auto* r = active_.last(); r != nullptr && r->since < 0; r = active_.before(*r)) r->since = now;
    operation_record* longest = active_.first();
    // A variable, so that the comparison and the return value agree.
    const double until = (longest == nullptr ? now : longest->since) + deadline_;
    if (longest != nullptr && now >= until) expired(*longest);
    return std::min(until, program_waits_until_);
  }

 private:
  waiting_list active_;
  waiting_list idle_;
  double deadline_ = 600;
  double program_waits_until_ = __builtin_inf();
};

} // namespace spar::inline v0_1::detail

#ifndef SPAR_COMPILED
#include <spar/runtime/endpoint/waits-inl.hpp>
#endif
