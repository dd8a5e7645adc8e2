// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A question of a rank to a peer, whose answer the rank awaits without suspending a coroutine.
#pragma once

#include <spar/runtime/transport_concept.hpp>

#include <cstdint>

#include <sched.h>

namespace spar::detail {

/// A question of this rank to `peer`, for example about the peer's call, and the answer once the peer has sent one.
/// While the question exists, the scheduler of this rank resumes no coroutine.
struct peer_question {
  /// A question of the rank with the scheduler `ready`. `its_place` refers to the question while the question exists.
  peer_question(peer_question*& its_place, scheduler& ready, rank_t whom, std::uint64_t number = 0) noexcept
      : peer(whom), sequence(number), place(&its_place), none_resumed(ready) {
    *place = this;
  }
  peer_question(const peer_question&) = delete;
  ~peer_question() { *place = nullptr; }

  /// Makes progress on `net` until the answer has arrived, the peer has left, the communicator dies, or `patience`
  /// seconds have passed.
  template <transport Net>
  [[gnu::cold]] void await(Net& net, double patience) const {
    endpoint& node = net.node();
    const double end = net.now() + patience;
    for (; !answered && !node.dead() && node.leavers().find(peer) == nullptr && net.now() < end; sched_yield()) {
      net.progress(false);
    }
  }

  rank_t peer;
  std::uint64_t sequence; // number of the call
  bool answered = false;
  bounded_text answer{};
  peer_question** place;
  scheduler::pause none_resumed;
};

} // namespace spar::detail
