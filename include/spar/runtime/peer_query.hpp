// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ranks query each other about their calls. A rank that has waited for long notifies the peer for which it waits: if
// ranks disagree on the algorithm or on a plan, each may wait for a rank that sends to another one, and then no message
// reveals the mismatch. A rank that receives a message with a different digest queries the sender, so that the error
// can name the calls of both.
#pragma once

#include <spar/core/util/algobase.hpp>
#include <spar/runtime/signature.hpp>
#include <spar/runtime/transport_concept.hpp>

#include <cstddef>
#include <cstring>
#include <exception>
#include <string_view>

#include <sched.h>

namespace spar::detail {

/// Start of the text of a control message about a call. The names of the operation and of the algorithm follow,
/// separated by a line feed.
struct call_note {
  enum class kind : std::uint8_t {
    waits,   ///< the source is in this call, and waits there for this rank
    differs, ///< the source is in this call, and asks for the call of this rank
    answer   ///< the source is in this call; if the algorithm is empty, in no call of this number
  };

  std::uint64_t digest = 0;
  std::uint64_t dimension = 0;
  std::uint32_t sequence = 0; // modulo header::sequences
  kind what{};
  element_code element{};
  element_code index{};
  std::uint8_t reserved = 0;
};
static_assert(sizeof(call_note) == 24);

/// The call of a rank with the number `sequence`, modulo header::sequences: the call in flight or the call that ended
/// last. Without such a call, the result is not `known()`.
[[gnu::cold]] inline call_view view_of(endpoint& node, std::uint64_t sequence) {
  const auto is_it = [&](const call_identity& call) { return (call.sequence - sequence) % header::sequences == 0; };
  const call_record* const call = node.calls().find(sequence);
  if (call != nullptr && is_it(*call)) return view_of(*call, call->agreed, node.rank(), call->describe);
  const call_identity& ended = node.calls().last_ended();
  if (!is_it(ended) || ended.agreed.form == nullptr) return {node.rank()};
  const description options = node.calls().kept_options(ended.sequence);
  call_view its = view_of(ended, ended.agreed, node.rank(), options);
  if (options.write == nullptr) its.algorithm.add(", in a call that has ended");
  return its;
}

/// Sends `peer` a description of this rank's call with the number `sequence`.
template <transport Net>
[[gnu::cold]] void send_call_note(Net& net, call_note::kind what, std::uint64_t sequence, rank_t peer) {
  const call_view own = view_of(net.node(), sequence);
  const call_note note{
      own.agreed.digest,  own.agreed.dimension, static_cast<std::uint32_t>(sequence % header::sequences), what,
      own.agreed.element, own.agreed.index};
  bounded_text text;
  text.add({reinterpret_cast<const char*>(&note), sizeof(note)});
  text.add(own.operation.view());
  text.add("\n");
  text.add(own.algorithm.view());
  send_text(net, control_message::purpose::call, text.view(), peer);
}

/// Describes the call of an awaited operation to the peer of the operation.
template <transport Net>
[[gnu::cold]] void ask(Net& net, operation_record& r) {
  ++r.asked;
  const call_record* const call = r.tag < 0 ? nullptr : net.node().calls().find(sequence_of(r.tag));
  if (call != nullptr) send_call_note(net, call_note::kind::waits, call->sequence, r.peer);
}

/// Describes the call of each awaited operation to its peer, unless that was done before. The simulator calls this when
/// all ranks wait and nothing else can happen.
template <transport Net>
void ask(Net& net) {
  waiting_list& waiting = net.node().waits().active();
  for (auto* r = waiting.first(); r != nullptr; r = waiting.after(*r)) {
    if (r->asked == 0) ask(net, *r);
  }
}

/// Checks the deadline, and describes this rank's call to each peer for which the rank has waited for 1, 2, 4, ...
/// seconds. Returns the time of the next check.
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
    if (r->asked == 0) break; // the operations behind it have not waited longer
  }
  return until;
}

/// Reads a description of a call of `source` from the text of a control message. Throws `corrupt_message` if the text
/// is malformed.
inline call_view read_call(std::string_view text, rank_t source, call_note& note) {
  const std::size_t line = text.find('\n', sizeof(note));
  if (line != text.npos) std::memcpy(static_cast<void*>(&note), text.data(), sizeof(note));
  if (line == text.npos || note.what > call_note::kind::answer) {
    raise<corrupt_message>({"malformed control message about a call"});
  }
  call_view said{source, {note.digest, note.element, note.index, note.dimension}};
  said.operation.add(text.substr(sizeof(note), line - sizeof(note)));
  said.algorithm.add(text.substr(line + 1));
  return said;
}

/// Queries `peer` for its call with the number `sequence`, after a message from `peer` had a different digest from this
/// rank's call. The result is not `known()` if the peer has no call of this number or does not answer within one
/// second. Throws `peer_failed` if another failure ends the call meanwhile.
template <transport Net>
[[gnu::cold]] call_view query_peer_call(Net& net, std::uint64_t sequence, rank_t peer) {
  endpoint& node = net.node();
  if (endpoint* const other = node.neighbour(peer)) return view_of(*other, sequence);
  peer_question asked{peer, sequence};
  const scheduler::pause none_resumed(node.scheduler());
  const struct asking {
    asking(endpoint& its, peer_question* what) : node(&its) { node->ask(what); }
    asking(const asking&) = delete;
    ~asking() { node->ask(nullptr); }
    endpoint* node;
  } until_here(node, &asked);
  send_call_note(net, call_note::kind::differs, sequence, peer);
  for (const double end = net.now() + 1; !asked.answered && !node.dead() && net.now() < end; sched_yield()) {
    net.progress(false);
  }
  if (!asked.answered && node.dead()) node.failure().raise_peer_failed();
  call_note note;
  return asked.answer.empty() ? call_view{peer} : read_call(asked.answer.view(), peer, note);
}

/// Handles a description of a peer's call. If this rank has a different call with the same number, the longest awaited
/// operation of this rank's call fails with `mismatch`. If this rank's call awaits nothing, the function throws
/// `mismatch` if the peer waits for this rank; a peer that only asks will abort the calls of all ranks. Throws
/// `corrupt_message` if `text` is malformed.
template <transport Net>
[[gnu::cold]] void on_call_note(Net& net, rank_t source, std::string_view text) {
  endpoint& node = net.node();
  call_note note;
  const call_view theirs = read_call(text, source, note);
  if (note.what == call_note::kind::differs) send_call_note(net, call_note::kind::answer, note.sequence, source);
  if (peer_question* const asked = node.question()) { // this rank has found a mismatch and is about to end its calls
    // A peer that has found the mismatch too sends both a question and an answer: the first to arrive counts.
    if (asked->answered || asked->peer != source || note.what == call_note::kind::waits) return;
    if (note.sequence != static_cast<std::uint32_t>(asked->sequence % header::sequences)) return; // about another call
    asked->answered = true;
    asked->answer.add(text);
    return;
  }
  const call_record* const call = node.calls().find(note.sequence);
  const header said = header_of(theirs.agreed, note.sequence);
  if (note.what == call_note::kind::answer || call == nullptr || is_of(said, call->agreed, call->sequence)) return;
  if (said.sequence != header::sequence_part(call->sequence)) return;
  try {
    check_fields(said, source, header_of(call->agreed, call->sequence), node.rank(), call->sequence);
    throw_mismatch(theirs, view_of(node, call->sequence));
  } catch (const mismatch&) {
    if (!node.fail_wait(*call, std::current_exception()) && note.what == call_note::kind::waits) throw;
  }
}

/// Handles a control message. Throws `corrupt_message` if no rank can have sent it, and the errors of `on_call_note`.
template <transport Net>
[[gnu::cold]] void on_control_message(Net& net, const control_message& note) {
  endpoint& node = net.node();
  if (note.what != control_message::purpose::call) return node.on_control_message(note);
  const bounded_text* const text = node.texts().add(note);
  if (text != nullptr) on_call_note(net, note.source, text->view());
}

} // namespace spar::detail
