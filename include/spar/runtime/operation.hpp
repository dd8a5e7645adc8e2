// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An awaitable for a send or a receive in flight, shared by all transports.
#pragma once

#include <spar/runtime/transport_concept.hpp>

#include <coroutine>
#include <exception>
#include <utility>

namespace spar {

/// Owns one operation of a transport, which has already started. Await it once. Destroying the object before the
/// operation ends cancels the operation by `Transport::abandon(record)`. Peers may then still read the buffers of a
/// cancelled send, as long as `node().loans().any()` is true.
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

  // Out of line: every await of every coroutine would otherwise compile these functions again.
  [[nodiscard, gnu::noinline]] bool await_ready() const noexcept {
    return record_ == nullptr || record_->done || record_->error || net_->node().dead();
  }
  void await_suspend(std::coroutine_handle<> waiting) const { net_->await(*record_, waiting); }
  /// Throws the error of the operation, or `peer_failed` if the communicator died before the operation ended.
  void await_resume() const {
    if (record_ != nullptr && (!record_->done || record_->error)) throw_error();
  }

 private:
  [[noreturn, gnu::cold]] void throw_error() const {
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
