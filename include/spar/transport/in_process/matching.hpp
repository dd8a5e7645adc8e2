// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Matches arrived messages with posted receives by (source, tag), in order, for the in-process transports.
#pragma once

#include <spar/core/memory/record_queue.hpp>

namespace spar::detail {

/// Holds the receives of a rank that wait for a message, records with members `peer` and `tag`, and the messages that
/// wait for a receive, records with `source` and `tag`. Both queues are short, so a scan is faster than a hash table.
template <class Arrival, class Receive>
class matching {
 public:
  /// Returns the receive that waits for `arrived`. If there is none, queues the message and returns null.
  Receive* arrive(Arrival* arrived) {
    Receive* found =
        receives_.take([=](const Receive& r) { return r.peer == arrived->source && r.tag == arrived->tag; });
    if (found == nullptr) arrivals_.push_back(arrived);
    return found;
  }

  /// Returns the message for which `posted` waits. If there is none, queues the receive and returns null.
  Arrival* post(Receive* posted) {
    Arrival* found = arrivals_.take([=](const Arrival& a) { return a.source == posted->peer && a.tag == posted->tag; });
    if (found == nullptr) receives_.push_back(posted);
    return found;
  }

  void withdraw(Receive* posted) noexcept {
    receives_.take([=](const Receive& r) { return &r == posted; });
  }

  [[nodiscard]] const record_queue<Receive>& receives() const noexcept { return receives_; }
  [[nodiscard]] const record_queue<Arrival>& arrivals() const noexcept { return arrivals_; }
  [[nodiscard]] record_queue<Arrival>& arrivals() noexcept { return arrivals_; }

 private:
  record_queue<Arrival> arrivals_;
  record_queue<Receive> receives_;
};

} // namespace spar::detail
