// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A send or a receive that is under way, as an awaitable. All transports share it.
#pragma once

#include <spar/core/message.hpp>
#include <spar/core/scheduler.hpp>

#include <coroutine>
#include <exception>
#include <utility>

namespace spar {

namespace detail {

/// What a transport's record of an operation has in common; written by the rank's thread alone.
struct operation_record {
  bool done = false;
  std::exception_ptr error;
  std::coroutine_handle<> waiting;

  void reset() noexcept {
    done = false;
    error = nullptr;
    waiting = nullptr;
  }
  [[noreturn, gnu::noinline, gnu::cold]] void throw_error() const { std::rethrow_exception(error); }
  void complete(scheduler& ready) {
    done = true;
    if (waiting) ready.post(std::exchange(waiting, nullptr));
  }
  void fail(scheduler& ready, std::exception_ptr why) {
    error = std::move(why);
    complete(ready);
  }
};

} // namespace detail

/// Owns one operation of a transport; it began when this was made. Await it once. Destroying it before its end cancels
/// it: `Transport::abandon(record)` sees to that.
template <class Transport, class Record>
class [[nodiscard]] operation {
 public:
  /// An operation that has already ended has no record.
  explicit operation(Transport& net, Record* record = nullptr) noexcept : net_(&net), record_(record) {}
  operation(operation&& other) noexcept : net_(other.net_), record_(other.record_) { other.record_ = nullptr; }
  operation& operator=(operation&& other) noexcept {
    std::swap(net_, other.net_);
    std::swap(record_, other.record_);
    return *this;
  }
  [[gnu::noinline]] ~operation() {
    if (record_ != nullptr) net_->abandon(record_);
  }

  [[nodiscard]] bool await_ready() const noexcept { return record_ == nullptr || record_->done; }
  void await_suspend(std::coroutine_handle<> waiting) const noexcept { record_->waiting = waiting; }
  void await_resume() const {
    if (record_ != nullptr && record_->error) record_->throw_error();
  }

 private:
  Transport* net_;
  Record* record_;
};

} // namespace spar
