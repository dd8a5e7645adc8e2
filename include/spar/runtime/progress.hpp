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
double poll_waits(const detail::control_port& net, double now);

/// Called by a transport with the exception that is being handled, if it cannot make progress: the operation that this
/// rank awaits fails with this exception, and so does its call. If no operation is awaited, aborts.
[[gnu::cold]] void on_progress_error(const detail::control_port& net) noexcept;

/// Handles the control message `note` of any purpose. Throws `corrupt_message` if `note` is invalid, `mismatch` if
/// `note` describes a call of a peer that differs from this rank's call, `invalid_argument` if `note` names a
/// collective and 2048 names are in use, `peer_failed` if another rank has failed, and std::bad_alloc. The transport
/// must then call `on_progress_error`.
[[gnu::cold]] void on_control_message(const detail::control_port& net, const control_message& note);

} // namespace spar::inline v0_1

#ifndef SPAR_COMPILED
#include <spar/runtime/progress-inl.hpp>
#endif
