// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An awaitable for a send or a receive in flight, used by all transports, and the base class of awaiters that extend
// it.
#pragma once

#include <spar/runtime/transport_concept.hpp>

#include <coroutine>
#include <exception>
#include <utility>

namespace spar::inline v0_1 {

/// Owns one operation of a transport, that is, a send or a receive that has already started. Await the object once.
/// Destroying the object before the operation ends cancels the operation by `Transport::abandon(record)`. After a send
/// is cancelled, a peer may still read the buffers of the send as long as `node().loans().any()` is true.
template <class Transport, class Record>
class [[nodiscard]] operation {
 public:
  /// Owns the operation of the transport `net` whose record is `record`, null for an operation that has already ended.
  explicit operation(Transport& net, Record* record = nullptr) noexcept : net_(&net), record_(record) {}
  operation(operation&& other) noexcept : net_(other.net_), record_(other.record_) { other.record_ = nullptr; }
  /// Exchanges the operations of both objects.
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

  /// Gives up the ownership and returns the record, which is null if the operation ended at once.
  [[nodiscard]] Record* release() noexcept { return std::exchange(record_, nullptr); }

  /// Whether the operation has ended or the communicator is dead. Not inlined: the compiler would otherwise generate
  /// this code again for every `co_await` of every coroutine.
  [[nodiscard, gnu::noinline]] bool await_ready() const noexcept {
    return record_ == nullptr || record_->done || record_->error || net_->node().dead();
  }
  void await_suspend(std::coroutine_handle<> waiting) const { net_->await(*record_, waiting); }
  /// Throws the error of the operation, or `peer_failed` if the communicator died before the operation ended. Not
  /// inlined, for the same reason.
  [[gnu::noinline]] void await_resume() const {
    if (record_ != nullptr && (!record_->done || record_->error)) throw_error();
  }

 private:
  [[noreturn, gnu::cold]] void throw_error() const {
    if (!record_->error) net_->node().failure().raise_peer_failed();
    std::rethrow_exception(record_->error);
  }

  Transport* net_;
  Record* record_;
};

/// Owns an operation of the type Inner, and forwards the three functions of an awaiter to the operation. A derived
/// class hides the functions whose behaviour it changes.
template <class Inner>
class forwarding_awaiter {
 public:
  /// Takes over the operation `inner`.
  explicit forwarding_awaiter(Inner inner) noexcept : inner_(std::move(inner)) {}
  [[nodiscard]] bool await_ready() const noexcept { return inner_.await_ready(); }
  void await_suspend(std::coroutine_handle<> waiting) const { inner_.await_suspend(waiting); }
  void await_resume() const { inner_.await_resume(); }

 private:
  Inner inner_;
};

} // namespace spar::inline v0_1
