// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ends the non-blocking calls of a communicator that is destroyed before their handles.
#pragma once

#include <spar/runtime/abort.hpp>
#include <spar/runtime/transport_concept.hpp>

namespace spar::inline v0_1::detail {

/// Whether a handle refers to a call on the transport `net` of `node` that has not ended.
[[gnu::cold]] bool has_unended_calls(endpoint& node, const void* net) noexcept;

/// Makes the handles of calls on the transport `net` of `node` independent of `net`, which is being destroyed.
[[gnu::cold]] void detach_handles(endpoint& node, const void* net) noexcept;

inline constexpr const char* destroyed_in_flight =
    "the communicator was destroyed while a call was in flight; wait for the call first";

/// Called when the transport `net` is destroyed: if a call is in flight, aborts the communicator, so that the call ends
/// on all ranks. Then `wait()` of the handle throws `peer_failed`. The calls unwind before this function returns, even
/// if a coroutine calls it, because they use `net`.
[[gnu::cold]] void end_calls(const control_port& net) noexcept;

/// As `end_calls` on each of `ranks`, all ranks of a communicator within one process, which are destroyed together.
template <class Ranks>
[[gnu::cold]] void end_calls_of_all(Ranks& ranks) noexcept {
  bool any = false;
  for (auto& rank : ranks) any = has_unended_calls(rank.port().node(), &rank.port()) || any;
  for (auto& rank : ranks) {
    if (any) abort_and_unwind(rank.port(), destroyed_in_flight);
  }
  for (auto& rank : ranks) end_calls(rank.port()); // the ranks have returned the send buffers of their peers
}

} // namespace spar::inline v0_1::detail

#ifndef SPAR_COMPILED
#include <spar/runtime/end_calls-inl.hpp>
#endif
