// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of peer_query.hpp that do not depend on the type of values.
#pragma once

#include <spar/runtime/peer_query.hpp>

namespace spar::inline v0_1::detail {

SPAR_INLINE void peer_question::await(const control_port& net, double patience) const {
  endpoint& node = net.node();
  const double end = net.now() + patience;
  for (; !answered && !node.dead() && node.leavers().find(peer) == nullptr && net.now() < end; sched_yield()) {
    net.progress(false);
  }
}

SPAR_INLINE const call_identity* find_call(endpoint& node, std::uint64_t sequence) {
  const call_record* const call = node.calls().find(sequence);
  if (call != nullptr && (call->sequence - sequence) % header::sequences == 0) return call;
  return node.calls().find_ended(sequence);
}

SPAR_INLINE call_view view_of(endpoint& node, std::uint64_t sequence) {
  const call_identity* const found = find_call(node, sequence);
  if (found == nullptr) return {node.rank()};
  const call_record* const call = node.calls().find(sequence);
  if (call == found) return view_of(*call, call->agreed, node.rank(), call->describe);
  const description options = node.calls().kept_options(found->sequence);
  call_view of_ended = view_of(*found, found->agreed, node.rank(), options);
  if (options.write == nullptr && found->agreed.root < 0) of_ended.algorithm.add(", in a call that has ended");
  return of_ended;
}

SPAR_INLINE void send_call_note(const control_port& net, call_note::kind what, std::uint64_t sequence, rank_t peer) {
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

SPAR_INLINE void ask(const control_port& net, operation_record& r) {
  ++r.asked;
  const call_record* const call = r.tag < 0 ? nullptr : net.node().calls().find(sequence_of(r.tag));
  if (call != nullptr) send_call_note(net, call_note::kind::waits, call->sequence, r.peer);
}

SPAR_INLINE void ask(const control_port& net) {
  waiting_list& waiting = net.node().waits().active();
  for (auto* r = waiting.first(); r != nullptr; r = waiting.after(*r)) {
    if (r->asked == 0) ask(net, *r);
  }
}

SPAR_INLINE bool preceding(std::uint64_t& sequence) noexcept {
  const std::uint64_t number = sequence % max_in_flight;
  if (number > 0 && number < first_named) {
    --sequence;
    return true;
  }
  if (sequence < max_in_flight) return false;
  sequence -= number == 0 ? max_in_flight - (first_named - 1) : max_in_flight;
  return true;
}

SPAR_INLINE call_view read_call(std::string_view text, rank_t source, call_note& note) {
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

SPAR_INLINE call_view view_of_silent(endpoint& node, std::uint64_t sequence, rank_t peer) {
  call_view call{peer};
  const calls_of_leaver* const left = node.leavers().find(peer);
  const last_call last = left != nullptr ? left->last() : last_call{};
  if (last.sequence != sequence % header::sequences) return call;
  call.agreed.digest = last.digest;
  call.agreed.root = last.root;
  call.history = last.history;
  return call;
}

SPAR_INLINE call_view query_peer_call(const control_port& net, std::uint64_t sequence, rank_t peer) {
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

SPAR_INLINE joined_text in_ended_call(std::uint64_t sequence) {
  return {" in collective ", sequence % max_in_flight, ", which has ended"};
}

SPAR_INLINE void throw_unknown_mismatch(const call_view& theirs, const call_view& own, std::uint64_t sequence) {
  const std::uint64_t number = sequence % max_in_flight;
  raise<mismatch>({"ranks disagree on the collectives ", number < first_named ? "without a name" : "with this name",
                   " before collective ", number, ": rank ", theirs.rank, " has the digest ", theirs.history,
                   " of them, rank ", own.rank, " has the digest ", own.history,
                   "; all ranks must make the same calls in the same order"});
}

SPAR_INLINE void throw_earlier_mismatch(const control_port& net, const call_view& theirs, const call_view& own,
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

SPAR_INLINE void compare_calls(const control_port& net, const call_record& call, rank_t peer, const char* where) {
  const call_view own = view_of(call, call.agreed, net.node().rank(), call.describe);
  const call_view theirs = query_peer_call(net, call.sequence, peer);
  if (theirs.agreed.digest == 0) return; // nothing is known
  if (theirs.history != own.history) throw_earlier_mismatch(net, theirs, own, call.sequence);
  if (theirs.agreed.digest != own.agreed.digest) throw_mismatch(theirs, own, where);
}

SPAR_INLINE void throw_mismatch(const control_port& net, const call_record& call, const signature& expected,
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

SPAR_INLINE void throw_left_over(const control_port& net, const call_record& call, rank_t source) {
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

[[gnu::noinline]] SPAR_INLINE void find_left_over(const control_port& net, const call_record& call, bool look) {
  const unreceived_message left = net.node().oldest_unreceived(look);
  if (left.head != nullptr && sequence_of(left.tag) == call.sequence % max_in_flight &&
      left.head->sequence == header::sequence_part(call.sequence))
    throw_left_over(net, call, left.source);
}

SPAR_INLINE void on_call_note(const control_port& net, rank_t source, std::string_view text) {
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
