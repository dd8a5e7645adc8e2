// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ends the calls of all ranks after one rank has failed: the failed rank sends the reason for its failure to the other
// ranks, and each rank resumes its waiting coroutines with an error. `endpoint/failure.hpp` records the reason. For
// callers: `spar::abort`, and `or_abort` for work that precedes a call, are in runtime/communicator_rank.hpp.
#pragma once

#include <spar/runtime/transport_concept.hpp>

#include <exception>
#include <string_view>

#include <sched.h>

namespace spar::inline v0_1 {

namespace detail {

/// Tells all other ranks that the rank `failed` has failed for the reason `reason`, and marks the communicator as dead,
/// like `spar::abort`, but does not unwind pending calls. Takes no memory. The caller holds the lock of the rank.
template <transport Net>
[[gnu::cold]] void abort(Net& net, std::string_view reason, rank_t failed) noexcept {
  if (net.node().dead()) return;
  bounded_text text;
  text.add({reinterpret_cast<const char*>(&failed), sizeof(failed)});
  text.add(reason);
  broadcast_text(net, control_message::purpose::abort, text.view());
  net.node().mark_dead(failed, reason);
}
/// Aborts the communicator because this rank has failed for the reason `reason`.
template <transport Net>
[[gnu::cold]] void abort(Net& net, std::string_view reason) noexcept {
  detail::abort(net, reason, net.rank());
}
/// Aborts the communicator because this rank has failed with the exception `why`.
template <transport Net>
[[gnu::cold]] void abort(Net& net, const std::exception_ptr& why) noexcept {
  if (!net.node().dead()) detail::abort(net, message_of(why).view());
}

/// Unwinds the pending calls of this rank, whose communicator is dead, so that peers regain the send buffers that these
/// calls were reading. A call that waits for a device unwinds when the device has answered, so this function waits for
/// it.
template <transport Net>
[[gnu::cold]] void unwind(Net& net) noexcept {
  net.scheduler().run();
  for (; net.scheduler().polls(); net.scheduler().run()) sched_yield();
}

/// Aborts the communicator, then unwinds this rank's pending calls. If a coroutine calls this function, the calls
/// unwind when this coroutine is suspended. The caller holds the lock of the rank.
template <transport Net>
[[gnu::cold]] void abort_and_unwind(Net& net, std::string_view reason) noexcept {
  detail::abort(net, reason);
  if (!net.scheduler().running()) unwind(net);
}

/// Waits until no peer reads memory of a failed call of this rank. If a peer still reads such memory, first aborts the
/// communicator.
template <transport Net>
void await_loans(Net& net) {
  if (net.node().loans().any()) detail::abort(net, "a call failed before other ranks had received its messages");
  while (net.node().loans().any()) net.progress(true);
}

} // namespace detail

/// Aborts the communicator with the message of the exception that is being handled, and rethrows this exception. This
/// is for what is not part of a call: a call aborts by its `call_error`.
template <transport Net>
[[noreturn, gnu::cold]] void abort_and_rethrow(Net& net) {
  detail::abort(net, std::current_exception());
  throw;
}

} // namespace spar::inline v0_1
