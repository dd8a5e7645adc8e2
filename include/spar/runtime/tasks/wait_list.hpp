// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The record of a send or a receive that all transports share, and the list of operations that coroutines await.
#pragma once

#include <spar/core/address.hpp>
#include <spar/runtime/tasks/scheduler.hpp>

#include <coroutine>
#include <cstdint>
#include <exception>
#include <utility>

namespace spar::detail {

/// A member of at most one ring of links; initially the only member of its ring.
class link {
 public:
  link() = default;
  link(const link&) = delete;

  void join_before(link& other) noexcept {
    after_ = &other;
    before_ = std::exchange(other.before_, this);
    before_->after_ = this;
  }
  void leave() noexcept {
    before_->after_ = after_;
    after_->before_ = before_;
    before_ = after_ = this;
  }
  [[nodiscard]] link& before() const noexcept { return *before_; }
  [[nodiscard]] link& after() const noexcept { return *after_; }

 private:
  link* before_ = this;
  link* after_ = this;
};

/// The common part of the transports' records of operations; only the rank's own thread accesses it.
struct operation_record : link {
  bool done = false;
  bool receives = false;
  rank_t peer = 0; // source or destination
  tag_t tag = 0;
  double since = -1;      // time at which the wait was first checked; -1 before
  std::uint8_t asked = 0; // how often the peer has been notified of this rank's call
  std::exception_ptr error;
  std::coroutine_handle<> waiting;

  void begin(bool is_receive, rank_t other, tag_t its_tag) noexcept {
    done = false;
    receives = is_receive;
    peer = other;
    tag = its_tag;
    error = nullptr;
  }
  /// Resumes the waiting coroutine, even if the operation has not ended.
  void wake(scheduler& ready) {
    if (!waiting) return;
    leave();
    ready.post(std::exchange(waiting, nullptr));
  }
  void complete(scheduler& ready) {
    done = true;
    wake(ready);
  }
  void fail(scheduler& ready, std::exception_ptr why) {
    error = std::move(why);
    complete(ready);
  }
  /// Forgets the waiting coroutine, which is being destroyed.
  void forget() noexcept {
    if (!waiting) return;
    leave();
    waiting = nullptr;
  }
};

/// The operations that coroutines of a rank await, the longest awaited first.
class waiting_list {
 public:
  void add(operation_record& r, std::coroutine_handle<> waiting) noexcept {
    r.waiting = waiting;
    r.since = -1;
    r.asked = 0;
    r.join_before(ring_);
  }
  [[nodiscard]] operation_record* first() const noexcept { return at(ring_.after()); }
  /// The operations that were added next after `r` and last before `r`; null if there is none.
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
