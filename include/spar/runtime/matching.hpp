// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Matches arrived messages with posted receives of the same source and tag, for the transports `threads`, `sim` and
// `ucx`. The transport `mpi` leaves matching to MPI.
#pragma once

#include <spar/core/memory/record_queue.hpp>
#include <spar/runtime/endpoint.hpp>

namespace spar::inline v0_1 {

/// Two queues of one rank: posted receives that wait for a message, and arrived messages that wait for a receive. A
/// `Receive` has the members `peer` and `tag`, an `Arrival` has `source`, `tag` and `head`. Both queues are short, so a
/// linear search is faster than a hash table.
template <class Arrival, class Receive>
class matching {
 public:
  /// Removes and returns the oldest receive that waits for the message `arrived`. If no receive waits for `arrived`,
  /// queues the message and returns null.
  Receive* arrive(Arrival* arrived) {
    Receive* found = take_receive(arrived->source, arrived->tag);
    if (found == nullptr) arrivals_.push_back(arrived);
    return found;
  }
  /// Removes and returns the oldest receive that waits for a message from `source` with the tag `tag`; null if there is
  /// none.
  Receive* take_receive(rank_t source, tag_t tag) {
    return receives_.take([=](const Receive& r) { return r.peer == source && r.tag == tag; });
  }

  /// Removes and returns the oldest message that matches the receive `posted`. If no message matches, queues the
  /// receive and returns null.
  Arrival* post(Receive* posted) {
    Arrival* found = arrivals_.take([=](const Arrival& a) { return a.source == posted->peer && a.tag == posted->tag; });
    if (found == nullptr) receives_.push_back(posted);
    return found;
  }

  /// Removes the receive `posted`, which waits for a message.
  void withdraw(Receive* posted) noexcept {
    receives_.take([=](const Receive& r) { return &r == posted; });
  }

  /// The message that has waited longest for a receive.
  [[nodiscard]] detail::unreceived_message oldest_arrival() const noexcept {
    const Arrival* const oldest = arrivals_.first();
    if (oldest == nullptr) return {};
    return {oldest->source, oldest->tag, &oldest->head};
  }

  /// The receives that wait for a message, the oldest first.
  [[nodiscard]] const detail::record_queue<Receive>& receives() const noexcept { return receives_; }
  /// The messages that wait for a receive, the oldest first.
  [[nodiscard]] const detail::record_queue<Arrival>& arrivals() const noexcept { return arrivals_; }
  [[nodiscard]] detail::record_queue<Arrival>& arrivals() noexcept { return arrivals_; }

 private:
  detail::record_queue<Arrival> arrivals_;
  detail::record_queue<Receive> receives_;
};

} // namespace spar::inline v0_1
