// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The last collective of a communicator, by which all ranks leave together.
#pragma once

#include <spar/collective/algorithm.hpp>
#include <spar/collective/basic/barrier.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/tasks/task.hpp>

#include <string_view>

namespace spar {

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

} // namespace spar
