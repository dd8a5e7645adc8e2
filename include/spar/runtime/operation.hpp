// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A send or a receive that is under way, as an awaitable. All transports share it.
#pragma once

#include <spar/runtime/transport_concept.hpp>

#include <coroutine>
#include <exception>
#include <utility>

namespace spar {

/// Owns one operation of a transport; it began when this was made. Await it once. Destroying it before its end cancels
/// it: `Transport::abandon(record)` sees to that. What it sends may then be read on, until nothing is lent.
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
    if (record_ == nullptr) return;
    record_->forget();
    net_->abandon(record_);
  }

  // Out of line: every await of every coroutine would compile them again.
  [[nodiscard, gnu::noinline]] bool await_ready() const noexcept {
    return record_ == nullptr || record_->done || record_->error || net_->node().dead();
  }
  [[gnu::noinline]] void await_suspend(std::coroutine_handle<> waiting) const { net_->await(*record_, waiting); }
  /// Throws the operation's error, or `peer_failed` where the communicator died before it ended.
  void await_resume() const {
    if (record_ != nullptr && (!record_->done || record_->error)) throw_error();
  }

 private:
  [[noreturn, gnu::noinline, gnu::cold]] void throw_error() const {
    if (!record_->error) net_->node().failure().raise_peer_failed();
    try {
      std::rethrow_exception(record_->error);
    } catch (...) {
      abort_and_rethrow(*net_);
    }
  }

  Transport* net_;
  Record* record_;
};

} // namespace spar
