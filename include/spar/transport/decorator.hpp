// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The base classes of decorators: transports that wrap another transport, and change or observe sends and receives.
#pragma once

#include <spar/runtime/communicator_rank.hpp>
#include <spar/runtime/tasks/forwarding_awaiter.hpp>

#include <atomic>
#include <coroutine>
#include <cstddef>
#include <cstdint>

namespace spar {

/// Forwards all functions of a transport to the wrapped transport `inner`, except `send` and `receive`, which each
/// decorator defines. The wrapped transport must outlive the decorator.
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

  /// For values in device memory: waits until the device has done its work on messages.
  void wait_until_idle() noexcept
    requires requires(Net& net) { net.wait_until_idle(); }
  {
    inner_->wait_until_idle();
  }
  /// For values in device memory: whether the device may still read memory of messages that has been freed.
  [[nodiscard]] bool reads_freed_memory() const noexcept
    requires requires(Net& net) { net.reads_freed_memory(); }
  {
    return inner_->reads_freed_memory();
  }

  template <shared_transport N = Net>
  void share() const {
    inner_->share();
  }
  template <sleeping_transport N = Net>
  void sleep_until(double time, const std::atomic<bool>& stopped) {
    inner_->sleep_until(time, stopped);
  }
  template <sleeping_transport N = Net>
  void wake() {
    inner_->wake();
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
/// as they are. A `device_port` above such a decorator keeps messages in device memory if the wrapped transport can. If
/// that is by `carries_device_memory`, `send` and `receive` get one more argument, which they must pass on.
template <transport Net>
class observing_port : public decorated_port<Net> {
 public:
  using decorated_port<Net>::decorated_port;

  /// Whether the wrapped transport passes messages in device memory on without access to them.
  static constexpr bool lends_device_memory = requires { requires Net::lends_device_memory; };
  /// Whether the wrapped transport sends and receives messages in device memory.
  static constexpr bool carries_device_memory = requires { requires Net::carries_device_memory; };
  /// Whether the wrapped transport of `self` can send and receive messages of `bytes` bytes in device memory.
  friend bool takes_device_memory(const observing_port& self, std::size_t bytes)
    requires requires(const Net& net) { takes_device_memory(net, bytes); }
  {
    return takes_device_memory(self.inner(), bytes);
  }
  /// For each call: lets the wrapped transport throw `invalid_argument` if the current CUDA device is not its own.
  void check_device()
    requires requires(Net& net) { net.check_device(); }
  {
    this->inner().check_device();
  }
};

} // namespace spar
