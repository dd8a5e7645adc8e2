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
[[gnu::cold]] void abort(const control_port& net, std::string_view reason, rank_t failed) noexcept;
/// Aborts the communicator because this rank has failed for the reason `reason`.
[[gnu::cold]] void abort(const control_port& net, std::string_view reason) noexcept;
/// Aborts the communicator because this rank has failed with the exception `why`.
[[gnu::cold]] void abort(const control_port& net, const std::exception_ptr& why) noexcept;

/// Unwinds the pending calls of this rank, whose communicator is dead, so that peers regain the send buffers that these
/// calls were reading. A call that waits for a device unwinds when the device has answered, so this function waits for
/// it.
[[gnu::cold]] void unwind(const control_port& net) noexcept;

/// Aborts the communicator, then unwinds this rank's pending calls. If a coroutine calls this function, the calls
/// unwind when this coroutine is suspended. The caller holds the lock of the rank.
[[gnu::cold]] void abort_and_unwind(const control_port& net, std::string_view reason) noexcept;

/// Ends the calls of a communicator whose ranks call `shrink` to go on without it: aborts, unless the communicator is
/// dead already, and unwinds this rank's pending calls. Throws `invalid_argument` in a coroutine that the scheduler has
/// resumed: pending calls could not unwind while `shrink` blocks. The caller does not hold the lock of the rank.
[[gnu::cold]] void end_for_shrink(const control_port& net);
/// Throws `invalid_argument` if a coroutine that has waited for a call calls `function`, which blocks. The caller holds
/// the lock of the rank.
[[gnu::cold]] void refuse_coroutine(const control_port& net, std::string_view function);

/// Waits until no peer reads memory of a failed call of this rank. If a peer still reads such memory, first aborts the
/// communicator.
void await_loans(const control_port& net);

} // namespace detail

/// Aborts the communicator with the message of the exception that is being handled, and rethrows this exception. This
/// is for what is not part of a call: a call aborts by its `call_error`.
[[noreturn, gnu::cold]] void abort_and_rethrow(const detail::control_port& net);

} // namespace spar::inline v0_1

#ifndef SPAR_COMPILED
#include <spar/runtime/abort-inl.hpp>
#endif
