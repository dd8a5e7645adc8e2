// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// For how long a rank waits for the others when they agree who goes on after a failure.
#pragma once

#include <spar/core/address.hpp>
#include <spar/rendezvous/survivors.hpp>
#include <spar/runtime/tasks/rank_mutex.hpp>

namespace spar::inline v0_1::detail {

/// Waits for a rank until it has left the dead communicator of `Port`, which `port.has_left(rank)` says, or until the
/// deadline of the communicator has passed.
template <class Port>
class patience_of final : public patience {
 public:
  explicit patience_of(Port& net) : net_(&net), until_(net.now() + net.deadline()) {}
  double left(rank_t peer) override {
    const rank_lock lock(net_->shared());
    net_->progress(false); // learns who has left
    return net_->has_left(peer) ? 0 : until_ - net_->now();
  }

 private:
  Port* net_;
  double until_;
};

} // namespace spar::inline v0_1::detail
