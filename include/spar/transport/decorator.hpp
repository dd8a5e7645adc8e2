// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The base class of decorators: transports that wrap another transport, and change or observe sends and receives.
#pragma once

#include <spar/runtime/communicator_rank.hpp>
#include <spar/runtime/tasks/forwarding_awaiter.hpp>

#include <atomic>
#include <coroutine>
#include <cstdint>

namespace spar {

/// Forwards all functions of a transport to the wrapped transport `inner`, except `send` and `receive`, which each
/// decorator defines. The wrapped transport must outlive the decorator.
template <transport Net>
class decorated_port {
 public:
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
  void await(detail::operation_record& r, std::coroutine_handle<> waiting) { inner_->await(r, waiting); }

  // For simulated programs: forwards `sleep(seconds)`, which exists only if the wrapped transport is simulated.
  auto sleep(double seconds)
    requires requires(Net& net) { net.sleep(seconds); }
  {
    return inner_->sleep(seconds);
  }

  // For a progress thread: forwards `share`, `sleep` and `wake`, if the wrapped transport has these functions.
  void share() const
    requires requires(Net& net) { net.share(); }
  {
    inner_->share();
  }
  void sleep(double until, const std::atomic<bool>& stopped)
    requires requires(Net& net) { net.sleep(until, stopped); }
  {
    inner_->sleep(until, stopped);
  }
  void wake()
    requires requires(Net& net) { net.wake(); }
  {
    inner_->wake();
  }

 protected:
  [[nodiscard]] Net& inner() const noexcept { return *inner_; }

 private:
  Net* inner_;
};

} // namespace spar
