// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ranks tell each other in which call they are. A rank that waits for long tells the one that it waits for: where ranks
// disagree on the algorithm, or on a plan, each may wait for one that sends to another, and no message that comes ever
// shows it. A rank that finds another digest in a message asks the sender what its call is, to name both in the error.
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

/// The front of the text of a control message about a call; the names of its operation and of its algorithm follow,
/// with a line feed between them.
struct call_note {
  enum class kind : std::uint8_t {
    waits,   ///< the source waits for this rank in that call
    differs, ///< the source is in that call, and asks in which this rank is
    answer   ///< the source is in that call; in none of that number where the algorithm is empty
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

/// The call of that number, modulo header::sequences, in which a rank is, or which it has ended last.
[[gnu::noinline, gnu::cold]] inline call_view view_of(endpoint& node, std::uint64_t sequence) {
  const auto is_it = [&](const call_identity& call) { return (call.sequence - sequence) % header::sequences == 0; };
  const call_record* const call = node.calls().find(sequence);
  if (call != nullptr && is_it(*call)) return view_of(*call, call->agreed, node.rank(), call->describe);
  const call_identity& ended = node.calls().last_ended();
  if (!is_it(ended) || ended.agreed.form == nullptr) return {node.rank()};
  const description options = node.calls().kept_options(ended.sequence);
  call_view its = view_of(ended, ended.agreed, node.rank(), options);
  if (options.write == nullptr) its.algorithm.add(", in a call that it has ended");
  return its;
}

/// Tells `peer` in which call of that number this rank is.
template <transport Net>
[[gnu::noinline, gnu::cold]] void send_call_note(Net& net, call_note::kind what, std::uint64_t sequence, rank_t peer) {
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

/// Tells the rank for which an operation waits to which call it belongs.
template <transport Net>
[[gnu::noinline, gnu::cold]] void ask(Net& net, operation_record& r) {
  ++r.asked;
  const call_record* const call = r.tag < 0 ? nullptr : net.node().calls().find(sequence_of(r.tag));
  if (call != nullptr) send_call_note(net, call_note::kind::waits, call->sequence, r.peer);
}

/// Asks those who have not been asked yet: where ranks wait and nothing else can happen.
template <transport Net>
void ask(Net& net) {
  waiting_list& waiting = net.node().waits().active();
  for (auto* r = waiting.first(); r != nullptr; r = waiting.after(*r)) {
    if (r->asked == 0) ask(net, *r);
  }
}

/// Looks at the deadline, and asks those for whom this rank has waited for a second, then for two, four and so on.
/// Returns the time at which it is to look again.
template <transport Net>
double poll_waits(Net& net, double now) {
  double until = net.node().expire_waits(now);
  waiting_list& waiting = net.node().waits().active();
  for (auto* r = waiting.first(); r != nullptr; r = waiting.after(*r)) {
    const double due = r->since + static_cast<double>(std::uint64_t{1} << std::min<unsigned>(r->asked, 60));
    if (now >= due)
      ask(net, *r);
    else
      until = std::min(until, due);
    if (r->asked == 0) break; // those behind it have not waited for longer
  }
  return until;
}

/// What the text of a control message says of a call of `source`. Throws `corrupt_message` for one that no rank sends.
inline call_view read_call(std::string_view text, rank_t source, call_note& note) {
  const std::size_t line = text.find('\n', sizeof(note));
  if (line != text.npos) std::memcpy(static_cast<void*>(&note), text.data(), sizeof(note));
  if (line == text.npos || note.what > call_note::kind::answer) {
    raise<corrupt_message>({"a control message about a call is malformed"});
  }
  call_view said{source, {note.digest, note.element, note.index, note.dimension}};
  said.operation.add(text.substr(sizeof(note), line - sizeof(note)));
  said.algorithm.add(text.substr(line + 1));
  return said;
}

/// A message of this rank's call of that number has come from `peer` with another digest: what the peer says of its
/// own. Unknown where the peer is in none, or says nothing within a second. Throws `peer_failed` where another failure
/// ends the call meanwhile.
template <transport Net>
[[gnu::noinline, gnu::cold]] call_view query_peer_call(Net& net, std::uint64_t sequence, rank_t peer) {
  endpoint& node = net.node();
  if (endpoint* const other = node.neighbour(peer)) return view_of(*other, sequence);
  peer_question asked{peer};
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

/// A peer has told in which call it is. Throws `corrupt_message` for a text that no rank sends, and `mismatch` where
/// the peer waits for this rank, which is in another call of that number and does not wait in it. Else this rank's call
/// ends in that; or the peer, which has asked, ends the calls of all.
template <transport Net>
[[gnu::noinline, gnu::cold]] void on_call_note(Net& net, rank_t source, std::string_view text) {
  endpoint& node = net.node();
  call_note note;
  const call_view theirs = read_call(text, source, note);
  if (note.what == call_note::kind::differs) send_call_note(net, call_note::kind::answer, note.sequence, source);
  if (peer_question* const asked = node.question()) { // this rank is about to end its calls
    if (asked->peer != source || note.what == call_note::kind::waits) return;
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

/// A control message has arrived. Throws `corrupt_message` for one that nobody can have sent, and as `on_call_note`.
template <transport Net>
[[gnu::noinline, gnu::cold]] void on_control_message(Net& net, const control_message& note) {
  endpoint& node = net.node();
  if (note.what != control_message::purpose::call) return node.on_control_message(note);
  const bounded_text* const text = node.texts().add(note);
  if (text != nullptr) on_call_note(net, note.source, text->view());
}

} // namespace spar::detail
