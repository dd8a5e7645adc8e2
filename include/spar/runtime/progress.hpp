// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions by which transports make progress: `poll_waits` checks the deadlines of awaited operations, except in the
// simulator, where deadlines are events; `on_control_message` handles a control message.
#pragma once

#include <spar/core/util/algobase.hpp>
#include <spar/runtime/abort.hpp>
#include <spar/runtime/peer_query.hpp>
#include <spar/runtime/transport_concept.hpp>
#include <spar/runtime/wait_errors.hpp>

#include <cstdint>
#include <exception>

namespace spar::inline v0_1 {

/// Makes an awaited operation fail if its peer has left without taking part in it, and with `timeout` if its deadline
/// has expired at the time `now`. Sends each peer a description of this rank's call after 1, 2, 4, ... seconds of
/// waiting for the peer, so that the peer can detect a mismatch. Returns the time of the next check. Times are in
/// seconds. The operation of a peer that has left gets `peer_failed`, or `corrupt_message` if the peer's description of
/// its call is malformed.
template <transport Net>
double poll_waits(Net& net, double now) {
  if (net.node().leavers().any()) detail::fail_wait_for_leaver(net, now);
  double until = net.node().waits().expire(now, [&](operation_record& r) { detail::time_out(net, r); });
  detail::waiting_list& waiting = net.node().waits().active();
  for (auto* r = waiting.first(); r != nullptr; r = waiting.after(*r)) {
    const double ask_at = r->since + static_cast<double>(std::uint64_t{1} << std::min<unsigned>(r->asked, 60));
    if (now >= ask_at)
      detail::ask(net, *r);
    else
      until = std::min(until, ask_at);
    if (r->asked == 0) break; // this operation and all later ones have been awaited for less than 1 s
  }
  return until;
}

/// Called by a transport with the exception that is being handled, if it cannot make progress: the operation that this
/// rank awaits fails with this exception, and so does its call. If no operation is awaited, aborts.
template <transport Net>
[[gnu::cold]] void on_progress_error(Net& net) noexcept {
  if (!net.node().fail_wait(std::current_exception())) detail::abort(net, std::current_exception());
}

/// Handles the control message `note` of any purpose. Throws `corrupt_message` if `note` is invalid, `mismatch` if
/// `note` describes a call of a peer that differs from this rank's call, `invalid_argument` if `note` names a
/// collective and 2048 names are in use, `peer_failed` if another rank has failed, and std::bad_alloc. The transport
/// must then call `on_progress_error`.
template <transport Net>
[[gnu::cold]] void on_control_message(Net& net, const control_message& note) {
  endpoint& node = net.node();
  using purpose = control_message::purpose;
  if (note.what != purpose::call && note.what != purpose::wait) return node.on_control_message(note);
  const detail::bounded_text* const text = node.texts().add(note);
  if (text == nullptr) return;
  if (note.what == purpose::call)
    detail::on_call_note(net, note.source, text->view());
  else
    detail::on_wait_note(net, note.source, text->view());
}

} // namespace spar::inline v0_1
