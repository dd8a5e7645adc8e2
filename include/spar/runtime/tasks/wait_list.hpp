// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What transports remember of a send or a receive, and the list of those that somebody waits for.
#pragma once

#include <spar/core/address.hpp>
#include <spar/runtime/tasks/scheduler.hpp>

#include <coroutine>
#include <cstdint>
#include <exception>
#include <utility>

namespace spar::detail {

/// A member of at most one ring of links; alone it is a ring of itself.
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

/// What a transport's record of an operation has in common; touched by the rank's thread alone.
struct operation_record : link {
  bool done = false;
  bool receives = false;
  rank_t peer = 0; // from whom, or to whom
  tag_t tag = 0;
  double since = -1;      // when the wait for it was first looked at; -1 before
  std::uint8_t asked = 0; // how often the peer has been asked whether it is in the same call
  std::exception_ptr error;
  std::coroutine_handle<> waiting;

  void begin(bool is_receive, rank_t other, tag_t its_tag) noexcept {
    done = false;
    receives = is_receive;
    peer = other;
    tag = its_tag;
    error = nullptr;
  }
  /// Resumes whoever waits, though the operation may not have ended.
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
  /// Whoever waited is being destroyed.
  void forget() noexcept {
    if (!waiting) return;
    leave();
    waiting = nullptr;
  }
};

/// The operations that coroutines of a rank wait for, the longest awaited first.
class waiting_list {
 public:
  void add(operation_record& r, std::coroutine_handle<> waiting) noexcept {
    r.waiting = waiting;
    r.since = -1;
    r.asked = 0;
    r.join_before(ring_);
  }
  [[nodiscard]] operation_record* first() const noexcept { return at(ring_.after()); }
  /// The one that was added after `r`, or before.
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
