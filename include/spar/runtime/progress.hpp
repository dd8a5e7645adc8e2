// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions by which transports make progress: `poll_waits` checks the deadlines of awaited operations, except in the
// simulator, where deadlines are events; `on_control_message` handles a control message.
#pragma once

#include <spar/core/util/algobase.hpp>
#include <spar/runtime/peer_query.hpp>
#include <spar/runtime/transport_concept.hpp>

#include <cstdint>

namespace spar::detail {

/// Makes the longest awaited operation fail if its deadline has expired. Sends each peer a description of this rank's
/// call after 1, 2, 4, ... seconds of waiting for the peer, so that the peer can detect a mismatch. Returns the time of
/// the next check, in seconds.
template <transport Net>
double poll_waits(Net& net, double now) {
  double until = net.node().expire_waits(now);
  waiting_list& waiting = net.node().waits().active();
  for (auto* r = waiting.first(); r != nullptr; r = waiting.after(*r)) {
    const double ask_at = r->since + static_cast<double>(std::uint64_t{1} << std::min<unsigned>(r->asked, 60));
    if (now >= ask_at)
      ask(net, *r);
    else
      until = std::min(until, ask_at);
    if (r->asked == 0) break; // this operation and all later ones have been awaited for less than 1 s
  }
  return until;
}

/// Handles a control message of any purpose. Throws `corrupt_message` if the message is invalid, and the errors of
/// `on_call_note` if the message is about a call.
template <transport Net>
[[gnu::cold]] void on_control_message(Net& net, const control_message& note) {
  endpoint& node = net.node();
  if (note.what != control_message::purpose::call) return node.on_control_message(note);
  const bounded_text* const text = node.texts().add(note);
  if (text != nullptr) on_call_note(net, note.source, text->view());
}

} // namespace spar::detail
