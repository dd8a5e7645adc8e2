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
[[gnu::cold]] inline const call_identity* find_call(endpoint& node, std::uint64_t sequence) {
  const call_record* const call = node.calls().find(sequence);
  if (call != nullptr && (call->sequence - sequence) % header::sequences == 0) return call;
  return node.calls().find_ended(sequence);
}

/// Describes the call on `node` whose number equals `sequence` modulo header::sequences. Only the calls in flight and
/// the calls that ended last can be described; for any other call, `known()` of the result is false.
[[gnu::cold]] inline call_view view_of(endpoint& node, std::uint64_t sequence) {
  const call_identity* const found = find_call(node, sequence);
  if (found == nullptr) return {node.rank()};
  const call_record* const call = node.calls().find(sequence);
  if (call == found) return view_of(*call, call->agreed, node.rank(), call->describe);
  const description options = node.calls().kept_options(found->sequence);
  call_view of_ended = view_of(*found, found->agreed, node.rank(), options);
  if (options.write == nullptr && found->agreed.root < 0) of_ended.algorithm.add(", in a call that has ended");
  return of_ended;
}

/// Sends `peer` a description of this rank's call with the number `sequence`.
template <transport Net>
[[gnu::cold]] void send_call_note(Net& net, call_note::kind what, std::uint64_t sequence, rank_t peer) {
  const call_view own = view_of(net.node(), sequence);
  const call_note note{own.agreed.digest,
                       own.history,
                       own.agreed.dimension,
                       static_cast<std::uint32_t>(sequence % header::sequences),
                       what,
                       own.agreed.element,
                       own.agreed.index};
  bounded_text text;
  text.add({reinterpret_cast<const char*>(&note), sizeof(note)});
  text.add(own.operation.view());
  text.add("\n");
  text.add(own.algorithm.view());
  send_text(net, control_message::purpose::call, text.view(), peer);
}

/// Sends the peer of the awaited operation `r` a description of the call to which `r` belongs.
template <transport Net>
[[gnu::cold]] void ask(Net& net, operation_record& r) {
  ++r.asked;
  const call_record* const call = r.tag < 0 ? nullptr : net.node().calls().find(sequence_of(r.tag));
  if (call != nullptr) send_call_note(net, call_note::kind::waits, call->sequence, r.peer);
}

/// Sends the peer of each awaited operation whose `asked` is 0 a description of the call to which the operation
/// belongs. The simulator calls this function when all ranks wait and no event is left, so that a mismatch is found
/// before the simulator reports a deadlock.
template <transport Net>
void ask(Net& net) {
  waiting_list& waiting = net.node().waits().active();
  for (auto* r = waiting.first(); r != nullptr; r = waiting.after(*r)) {
    if (r->asked == 0) ask(net, *r);
  }
}

/// Sets `sequence`, the number of a call, to that of the preceding call without a name or, if the call has a name, of
/// the preceding call with this name. Returns false if there is none.
[[nodiscard, gnu::cold]] inline bool preceding(std::uint64_t& sequence) noexcept {
  const std::uint64_t number = sequence % max_in_flight;
  if (number > 0 && number < first_named) {
    --sequence;
    return true;
  }
  if (sequence < max_in_flight) return false;
  sequence -= number == 0 ? max_in_flight - (first_named - 1) : max_in_flight;
  return true;
}

/// Parses `text`, the text of a control message in which the rank `source` describes its call, and copies the first 32
/// bytes of `text` to `note`. Throws `corrupt_message` if `text` is malformed.
inline call_view read_call(std::string_view text, rank_t source, call_note& note) {
  const std::size_t line = text.find('\n', sizeof(note));
  if (line != text.npos) std::memcpy(static_cast<void*>(&note), text.data(), sizeof(note));
  if (line == text.npos || note.what > call_note::kind::answer) {
    raise<corrupt_message>({"malformed control message about a call: got ", text.size(), " bytes from rank ", source,
                            "; expected 32 bytes with a known kind, then text with a line feed"});
  }
  call_view said{source, {note.digest, note.element, note.index, -1, note.dimension}, note.history};
  said.operation.add(text.substr(sizeof(note), line - sizeof(note)));
  said.algorithm.add(text.substr(line + 1));
  return said;
}

/// Describes the call with the number `sequence` of `peer`, which does not answer, as far as this rank can tell. If
/// `peer` has left, and this call is the last that has ended on it, sets the digest, the history and the root;
/// otherwise, the result contains only the rank. `known()` of the result is false.
[[gnu::cold]] inline call_view view_of_silent(endpoint& node, std::uint64_t sequence, rank_t peer) {
  call_view call{peer};
  const calls_of_leaver* const left = node.leavers().find(peer);
  const last_call last = left != nullptr ? left->last() : last_call{};
  if (last.sequence != sequence % header::sequences) return call;
  call.agreed.digest = last.digest;
  call.agreed.root = last.root;
  call.history = last.history;
  return call;
}

/// Queries `peer` for a description of its call with the number `sequence`, unless `peer` has left. `known()` of the
/// result is false if `peer` has no call of this number, has left or does not answer within one second. Throws
/// `peer_failed` if the communicator dies before the answer arrives.
template <transport Net>
[[gnu::cold]] call_view query_peer_call(Net& net, std::uint64_t sequence, rank_t peer) {
  endpoint& node = net.node();
  if (endpoint* const other = node.neighbour(peer)) return view_of(*other, sequence);
  if (node.leavers().find(peer) != nullptr) return view_of_silent(node, sequence, peer);
  peer_question asked(node.question(), node.scheduler(), peer, sequence);
  send_call_note(net, call_note::kind::differs, sequence, peer);
  asked.await(net, 1);
  if (!asked.answered && node.dead()) node.failure().raise_peer_failed();
  call_note note;
  return asked.answer.empty() ? view_of_silent(node, sequence, peer) : read_call(asked.answer.view(), peer, note);
}

/// Describes a call before the one that fails, as a part of an error message.
[[gnu::cold]] inline joined_text in_ended_call(std::uint64_t sequence) {
  return {" in collective ", sequence % max_in_flight, ", which has ended"};
}

/// Throws `mismatch` because the ranks have made other calls before the call with the number `sequence`, but no rank
/// can tell which. `theirs` describes the call of a peer with this number, and `own` that of this rank.
[[noreturn, gnu::cold]] inline void throw_unknown_mismatch(const call_view& theirs, const call_view& own,
                                                           std::uint64_t sequence) {
  const std::uint64_t number = sequence % max_in_flight;
  raise<mismatch>({"ranks disagree on the collectives ", number < first_named ? "without a name" : "with this name",
                   " before collective ", number, ": rank ", theirs.rank, " has the digest ", theirs.history,
                   " of them, rank ", own.rank, " has the digest ", own.history,
                   "; all ranks must make the same calls in the same order"});
}

/// Throws `mismatch` with a message about the earlier call in which the ranks disagree. `theirs` describes the call
/// with the number `sequence` of a peer, and `own` this rank's call with this number; their histories differ. Queries
/// the peer about the preceding calls.
template <transport Net>
[[noreturn, gnu::cold]] void throw_earlier_mismatch(Net& net, const call_view& theirs, const call_view& own,
                                                    std::uint64_t sequence) {
  for (std::uint64_t earlier = sequence; preceding(earlier);) {
    const call_view ours = view_of(net.node(), earlier);
    if (!ours.known()) break;
    const call_view earlier_call = query_peer_call(net, earlier, theirs.rank);
    if (!earlier_call.known()) break;
    if (earlier_call.history == ours.history) throw_mismatch(earlier_call, ours, in_ended_call(earlier).c_str());
  }
  throw_unknown_mismatch(theirs, own, sequence);
}

/// Throws `mismatch` if this rank learns that `peer` has made another call than `call`, or other calls before it.
/// `where` says in which collective, unless it is the one that fails.
template <transport Net>
[[gnu::cold]] void compare_calls(Net& net, const call_record& call, rank_t peer, const char* where = "") {
  const call_view own = view_of(call, call.agreed, net.node().rank(), call.describe);
  const call_view theirs = query_peer_call(net, call.sequence, peer);
  if (theirs.agreed.digest == 0) return; // nothing is known
  if (theirs.history != own.history) throw_earlier_mismatch(net, theirs, own, call.sequence);
  if (theirs.agreed.digest != own.agreed.digest) throw_mismatch(theirs, own, where);
}

/// Throws `mismatch` because `h`, the header of a message from `peer`, does not belong to a message of this rank's
/// `call` on which ranks agree as `expected` says.
template <transport Net>
[[noreturn, gnu::cold]] void throw_mismatch(Net& net, const call_record& call, const signature& expected,
                                            const header& h, rank_t peer) {
  const rank_t rank = net.node().rank();
  const header ours = header_of(expected, call);
  call_view own = view_of(call, call.agreed, rank, call.describe);
  call_view theirs = query_peer_call(net, call.sequence, peer);
  if (theirs.known() && theirs.history != own.history) throw_earlier_mismatch(net, theirs, own, call.sequence);
  check_sequence(h, peer, call, rank);
  if (!theirs.known()) check_fields(h, peer, ours, rank);
  if (h.digest == ours.digest) { // the calls are equal, so the message belongs to another phase of the call
    raise<mismatch>({"ranks disagree on the phase of ", own.algorithm.c_str(), ": rank ", peer,
                     " has sent a message of ", name_of(h.element).c_str(), ", rank ", rank, " expects ",
                     name_of(ours.element).c_str(), "; their plans or states differ"});
  }
  own.agreed.digest = expected.digest; // covers the chosen algorithm; the digest in the peer's answer does not
  theirs.agreed.digest = h.digest ^ own.history;
  throw_mismatch(theirs, own);
}

/// Throws `mismatch` because this rank has not received a message of its `call` from the rank `source`, and the call is
/// about to end.
template <transport Net>
[[noreturn, gnu::cold]] void throw_left_over(Net& net, const call_record& call, rank_t source) {
  const rank_t rank = net.node().rank();
  const joined_text where{" in collective ",
                          call.sequence % max_in_flight,
                          ", in which rank ",
                          rank,
                          " has not received a message that rank ",
                          source,
                          " has sent"};
  compare_calls(net, call, source, where.c_str());
  const call_view own = view_of(call, call.agreed, rank, call.describe);
  raise<mismatch>({"ranks disagree on the messages", where.c_str(), ": rank ", rank, " has ", own.algorithm.c_str(),
                   ", ", own.operation.c_str(), ", n = ", own.agreed.dimension,
                   "; both ranks must make the same call, in which each message is received"});
}

/// Throws `mismatch` if the message that has waited longest for a receive is one of `call`, which is about to end on
/// this rank. If `look` is true, first looks for messages that have just arrived.
template <transport Net>
[[gnu::noinline]] void find_left_over(Net& net, const call_record& call, bool look) {
  const unreceived_message left = net.node().oldest_unreceived(look);
  if (left.head != nullptr && sequence_of(left.tag) == call.sequence % max_in_flight &&
      left.head->sequence == header::sequence_part(call.sequence))
    throw_left_over(net, call, left.source);
}

/// Throws `mismatch` if a message of `call`, which is about to end on this rank, waits for a receive, as far as the
/// transport can tell. A rank that has received nothing in the call has compared nothing, so it looks for messages that
/// have just arrived. Of two ranks of a process that only send to each other, at least one thus finds a message.
template <transport Net>
void check_left_over(Net& net, const call_record& call) {
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
template <transport Net>
[[gnu::cold]] void on_call_note(Net& net, rank_t source, std::string_view text) {
  using kind = call_note::kind;
  endpoint& node = net.node();
  call_note note;
  const call_view theirs = read_call(text, source, note);
  if (note.what == kind::differs) send_call_note(net, kind::answer, note.sequence, source);
  if (peer_question* const asked = node.question()) { // this rank waits for an answer from a peer
    // If the peer has found the same mismatch, the peer sends a question as well as an answer. Both describe the call
    // of the peer, and this rank uses the first to arrive.
    if (asked->answered || asked->peer != source || note.what == kind::waits) return;
    if (note.sequence != static_cast<std::uint32_t>(asked->sequence % header::sequences))
      return; // not about the call in question
    asked->answered = true;
    asked->answer.add(text);
    return;
  }
  const call_identity* const call = find_call(node, note.sequence);
  if (call == nullptr || node.dead()) return;
  const bool same_call =
      note.digest == call->agreed.digest && note.element == call->agreed.element && note.index == call->agreed.index;
  const bool same_history = note.history == call->history;
  if (same_call && same_history) return;
  std::uint64_t earlier = call->sequence;
  if (!same_history) {
    if (note.what == kind::differs) return;
    if (theirs.known() && preceding(earlier) && find_call(node, earlier) != nullptr)
      return send_call_note(net, kind::differs, earlier, source);
  }
  const bool in_flight = node.calls().find(call->sequence) == call;
  try {
    const call_view own = view_of(node, note.sequence);
    if (!same_history || !theirs.known()) throw_unknown_mismatch(theirs, own, call->sequence);
    throw_mismatch(theirs, own, in_flight ? "" : in_ended_call(call->sequence).c_str());
  } catch (const mismatch&) {
    const bool fails = node.fail_wait(in_flight ? call : nullptr, std::current_exception());
    if (!fails && note.what != kind::differs) throw;
  }
}

} // namespace spar::inline v0_1::detail
