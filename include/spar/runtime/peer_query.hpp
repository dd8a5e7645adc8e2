// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Queries by which ranks detect and explain a mismatch of their calls. If ranks disagree on the algorithm or on a plan,
// each rank may wait for a rank that sends to a different rank, so that no message reveals the mismatch. Therefore a
// rank that has waited for 1 s sends a description of its call to the peer for which it waits. A rank that receives a
// message whose digest differs from the digest of its own call queries the sender, so that the error message can
// describe the calls of both ranks. If only the history differs, an earlier call differed, in which no rank compared
// anything; the rank then queries the sender about the calls before this one.
#pragma once

#include <spar/runtime/signature.hpp>
#include <spar/runtime/tasks/operation_record.hpp>
#include <spar/runtime/transport_concept.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <string_view>

#include <sched.h>

namespace spar::inline v0_1::detail {

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
  [[gnu::cold]] void await(const control_port& net, double patience) const;

  rank_t peer;
  std::uint64_t sequence; // number of the call
  bool answered = false;
  bounded_text answer{};
  peer_question** place;
  scheduler::pause none_resumed;
};

/// The first 32 bytes of the text of a control message about a call. The name of the operation follows, then a line
/// feed, then the name and the options of the algorithm.
struct call_note {
  enum class kind : std::uint8_t {
    waits,   ///< the source of the note is in the described call, and waits for the receiver
    differs, ///< describes a call of the source, which asks the receiver to describe its call with the same number
    answer   ///< the answer to `differs`; the algorithm is empty if the source knows no call with this number
  };

  std::uint64_t digest = 0;
  std::uint64_t history = 0;
  std::uint64_t dimension = 0;
  std::uint32_t sequence = 0; // number of the call, modulo header::sequences
  kind what{};
  element_code element{};
  element_code index{};
  std::uint8_t reserved = 0;
};
static_assert(sizeof(call_note) == 32);

/// The call on `node` whose number equals `sequence` modulo header::sequences, if the call is in flight or one of those
/// that have ended last; null otherwise.
[[gnu::cold]] const call_identity* find_call(endpoint& node, std::uint64_t sequence);

/// Describes the call on `node` whose number equals `sequence` modulo header::sequences. Only the calls in flight and
/// the calls that ended last can be described; for any other call, `known()` of the result is false.
[[gnu::cold]] call_view view_of(endpoint& node, std::uint64_t sequence);

/// Sends `peer` a description of this rank's call with the number `sequence`.
[[gnu::cold]] void send_call_note(const control_port& net, call_note::kind what, std::uint64_t sequence, rank_t peer);

/// Sends the peer of the awaited operation `r` a description of the call to which `r` belongs.
[[gnu::cold]] void ask(const control_port& net, operation_record& r);

/// Sends the peer of each awaited operation whose `asked` is 0 a description of the call to which the operation
/// belongs. The simulator calls this function when all ranks wait and no event is left, so that a mismatch is found
/// before the simulator reports a deadlock.
void ask(const control_port& net);

/// Sets `sequence`, the number of a call, to that of the preceding call without a name or, if the call has a name, of
/// the preceding call with this name. Returns false if there is none.
[[nodiscard, gnu::cold]] bool preceding(std::uint64_t& sequence) noexcept;

/// Parses `text`, the text of a control message in which the rank `source` describes its call, and copies the first 32
/// bytes of `text` to `note`. Throws `corrupt_message` if `text` is malformed.
call_view read_call(std::string_view text, rank_t source, call_note& note);

/// Describes the call with the number `sequence` of `peer`, which does not answer, as far as this rank can tell. If
/// `peer` has left, and this call is the last that has ended on it, sets the digest, the history and the root;
/// otherwise, the result contains only the rank. `known()` of the result is false.
[[gnu::cold]] call_view view_of_silent(endpoint& node, std::uint64_t sequence, rank_t peer);

/// Queries `peer` for a description of its call with the number `sequence`, unless `peer` has left. `known()` of the
/// result is false if `peer` has no call of this number, has left or does not answer within one second. Throws
/// `peer_failed` if the communicator dies before the answer arrives.
[[gnu::cold]] call_view query_peer_call(const control_port& net, std::uint64_t sequence, rank_t peer);

/// Describes a call before the one that fails, as a part of an error message.
[[gnu::cold]] joined_text in_ended_call(std::uint64_t sequence);

/// Throws `mismatch` because the ranks have made other calls before the call with the number `sequence`, but no rank
/// can tell which. `theirs` describes the call of a peer with this number, and `own` that of this rank.
[[noreturn, gnu::cold]] void throw_unknown_mismatch(const call_view& theirs, const call_view& own,
                                                    std::uint64_t sequence);

/// Throws `mismatch` with a message about the earlier call in which the ranks disagree. `theirs` describes the call
/// with the number `sequence` of a peer, and `own` this rank's call with this number; their histories differ. Queries
/// the peer about the preceding calls.
[[noreturn, gnu::cold]] void throw_earlier_mismatch(const control_port& net, const call_view& theirs,
                                                    const call_view& own, std::uint64_t sequence);

/// Throws `mismatch` if this rank learns that `peer` has made another call than `call`, or other calls before it.
/// `where` says in which collective, unless it is the one that fails.
[[gnu::cold]] void compare_calls(const control_port& net, const call_record& call, rank_t peer, const char* where = "");

/// Throws `mismatch` because `h`, the header of a message from `peer`, does not belong to a message of this rank's
/// `call` on which ranks agree as `expected` says.
[[noreturn, gnu::cold]] void throw_mismatch(const control_port& net, const call_record& call, const signature& expected,
                                            const header& h, rank_t peer);

/// Throws `mismatch` because this rank has not received a message of its `call` from the rank `source`, and the call is
/// about to end.
[[noreturn, gnu::cold]] void throw_left_over(const control_port& net, const call_record& call, rank_t source);

/// Throws `mismatch` if the message that has waited longest for a receive is one of `call`, which is about to end on
/// this rank. If `look` is true, first looks for messages that have just arrived.
void find_left_over(const control_port& net, const call_record& call, bool look);

/// Throws `mismatch` if a message of `call`, which is about to end on this rank, waits for a receive, as far as the
/// transport can tell. A rank that has received nothing in the call has compared nothing, so it looks for messages that
/// have just arrived. Of two ranks of a process that only send to each other, at least one thus finds a message.
inline void check_left_over(const control_port& net, const call_record& call) {
  const bool only_sent = call.cost.messages_received == 0 && call.cost.messages_sent > 0;
  if (net.node().may_have_unreceived(only_sent)) find_left_over(net, call, only_sent);
}

/// Handles `text`, in which the rank `source` describes its call:
/// - If `source` asks for this rank's call, answers `source`.
/// - While this rank waits for the answer of a peer, uses `text` only as this answer.
/// - Otherwise, if the communicator is alive, and this rank's call with the same number differs from the described
///   call, makes the longest awaited operation of this rank's call or, if this rank's call has ended, of any call fail
///   with `mismatch`. If no operation is awaited, throws `mismatch`. But if the history of the calls differs, asks
///   `source` about the preceding call, until the answer describes the first call that differs.
/// - If `source` asks for this rank's call, `source` aborts the calls of all ranks itself.
///
/// Throws `corrupt_message` if `text` is malformed.
[[gnu::cold]] void on_call_note(const control_port& net, rank_t source, std::string_view text);

} // namespace spar::inline v0_1::detail

#ifndef SPAR_COMPILED
#include <spar/runtime/peer_query-inl.hpp>
#endif
