// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The base classes of decorators: transports that wrap another transport, and change or observe sends and receives.
#pragma once

#include <spar/runtime/communicator_rank.hpp>
#include <spar/runtime/operation.hpp>

#include <coroutine>
#include <cstddef>
#include <cstdint>

namespace spar::inline v0_1 {

/// Forwards all functions of a transport to the wrapped transport `inner`, except `send` and `receive`, which each
/// decorator defines, and `path_on_device`. The wrapped transport must outlive the decorator.
template <transport Net>
class decorated_port {
 public:
  /// Wraps the transport `inner`.
  explicit decorated_port(Net& inner) noexcept : inner_(&inner) {}

  [[nodiscard]] rank_t rank() const noexcept { return inner_->rank(); }
  [[nodiscard]] rank_t size() const noexcept { return inner_->size(); }
  [[nodiscard]] endpoint& node() const noexcept { return inner_->node(); }
  [[nodiscard]] spar::scheduler& scheduler() noexcept { return inner_->scheduler(); }
  [[nodiscard]] pool& memory() const noexcept { return inner_->memory(); }
  [[nodiscard]] double now() noexcept { return inner_->now(); }
  void compute(std::uint64_t entries) { inner_->compute(entries); }
  void progress(bool block) { inner_->progress(block); }
  void post(const control_message& note, rank_t peer) { inner_->post(note, peer); }
  void await(operation_record& r, std::coroutine_handle<> waiting) { inner_->await(r, waiting); }

  // What only some transports have: see runtime/transport_concept.hpp.

  template <shared_transport N = Net>
  void share() const {
    inner_->share();
  }
  /// Sleeps until `time` as the inner transport does.
  template <sleeping_transport N = Net>
  bool sleep_until(double time) {
    return inner_->sleep_until(time);
  }
  template <sleeping_transport N = Net>
  void wake() {
    inner_->wake();
  }
  template <device_bound_transport N = Net>
  void check_device() {
    inner_->check_device();
  }
  /// Makes the device of the transport the current one until the returned object is destroyed.
  template <device_bound_transport N = Net>
  [[nodiscard]] auto make_current() const noexcept {
    return inner_->make_current();
  }
  template <device_bound_transport N = Net>
  void wait_until_idle() noexcept {
    inner_->wait_until_idle();
  }
  template <simulated_transport N = Net>
  auto sleep(double seconds) {
    return inner_->sleep(seconds);
  }

 protected:
  /// The wrapped transport.
  [[nodiscard]] Net& inner() const noexcept { return *inner_; }

 private:
  Net* inner_;
};

/// The base class of decorators that neither read nor write payloads, but pass `message_pieces` and `message_buffer` on
/// as they are. Payloads may therefore be in device memory if the wrapped transport is a `device_transport`.
template <transport Net>
class observing_port : public decorated_port<Net> {
 public:
  using decorated_port<Net>::decorated_port;

  template <device_transport N = Net>
  [[nodiscard]] device_path path_on_device(std::size_t bytes, std::size_t pieces) const noexcept {
    return this->inner().path_on_device(bytes, pieces);
  }
};

} // namespace spar::inline v0_1
