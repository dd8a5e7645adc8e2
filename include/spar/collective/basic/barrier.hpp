// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The dissemination barrier (Hensgen, Finkel and Manber 1988), and the barrier by which all ranks leave.
#pragma once

#include <spar/collective/algorithm.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/tasks/task.hpp>

#include <bit>
#include <cstdint>
#include <string_view>

namespace spar::inline v0_1 {

/// No rank leaves the barrier before all ranks have entered the barrier. Each rank sends ceil(log2 P) empty messages,
/// the first to its most distant peer and the last to the next rank. The last message therefore often stays on one
/// host and is not delayed there by messages of ranks that have already left the barrier.
struct dissemination_barrier : algorithm_defaults {
  static constexpr std::string_view name = "dissemination_barrier";

  template <transport Net>
  task<void> operator()(channel<Net> net) const& {
    const rank_t p = net.size();
    const auto farthest = static_cast<rank_t>(std::bit_floor(static_cast<std::uint32_t>(p - 1)));
    for (rank_t distance = farthest; distance > 0; distance /= 2) {
      const payload nothing{};
      auto sending = net.send((net.rank() + distance) % p, nothing);
      message_buffer in(net.memory());
      co_await net.receive((net.rank() + p - distance) % p, in);
      in.release();
      co_await sending;
    }
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;
};

/// A dissemination_barrier. From its start, no rank can start another call on the communicator.
struct agreed_leave : algorithm_defaults {
  static constexpr std::string_view name = "leave";

  template <transport Net>
  task<void> operator()(channel<Net> net) const& {
    net.net().node().close(); // first: the other ranks would not take part in a call that this rank starts now
    const dissemination_barrier all;
    co_await all(net);
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;
};

} // namespace spar::inline v0_1
