// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Queries by which ranks detect and explain a mismatch of their calls. If ranks disagree on the algorithm or on a plan,
// each rank may wait for a rank that sends to a different rank, so that no message reveals the mismatch. Therefore a
// rank that has waited for 1 s sends a description of its call to the peer for which it waits. A rank that receives a
// message whose digest differs from the digest of its own call queries the sender, so that the error message can
// describe the calls of both ranks.
#pragma once

#include <spar/core/util/algobase.hpp>
#include <spar/runtime/signature.hpp>
#include <spar/runtime/tasks/operation_record.hpp>
#include <spar/runtime/transport_concept.hpp>

#include <cstddef>
#include <cstring>
#include <exception>
#include <string_view>

#include <sched.h>

namespace spar::detail {

/// The first 24 bytes of the text of a control message about a call. The name of the operation follows, then a line
/// feed, then the name and the options of the algorithm.
struct call_note {
  enum class kind : std::uint8_t {
    waits,   ///< the source of the note is in the described call, and waits for the receiver
    differs, ///< the source is in the described call, and asks the receiver to describe its call
    answer   ///< the answer to `differs`; the algorithm is empty if the source knows no call with this number
  };

  std::uint64_t digest = 0;
  std::uint64_t dimension = 0;
  std::uint32_t sequence = 0; // number of the call, modulo header::sequences
  kind what{};
  element_code element{};
  element_code index{};
  std::uint8_t reserved = 0;
};
static_assert(sizeof(call_note) == 24);

/// Describes the call on `node` whose number equals `sequence` modulo header::sequences. Only the calls in flight and
/// the call that ended last can be described; for any other call, `known()` of the result is false.
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

/// Parses `text`, the text of a control message in which the rank `source` describes its call, and copies the first 24
/// bytes of `text` to `note`. Throws `corrupt_message` if `text` is malformed.
inline call_view read_call(std::string_view text, rank_t source, call_note& note) {
  const std::size_t line = text.find('\n', sizeof(note));
  if (line != text.npos) std::memcpy(static_cast<void*>(&note), text.data(), sizeof(note));
  if (line == text.npos || note.what > call_note::kind::answer) {
    raise<corrupt_message>({"malformed control message about a call: got ", text.size(), " bytes from rank ", source,
                            "; expected 24 bytes with a known kind, then text with a line feed"});
  }
  call_view said{source, {note.digest, note.element, note.index, note.dimension}};
  said.operation.add(text.substr(sizeof(note), line - sizeof(note)));
  said.algorithm.add(text.substr(line + 1));
  return said;
}

/// Queries `peer` for a description of its call with the number `sequence`. Called after a message from `peer` whose
/// digest differs from the digest of this rank's call. `known()` of the result is false if `peer` has no call of this
/// number or does not answer within one second. Throws `peer_failed` if the communicator dies before the answer
/// arrives.
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

/// Handles `text`, in which the rank `source` describes its call:
/// - If `source` asks for this rank's call, answers `source`.
/// - While this rank waits for the answer of a peer, uses `text` only as this answer. An answer that arrives after this
///   wait is ignored.
/// - Otherwise, if this rank's call with the same number differs from the described call, makes the longest awaited
///   operation of this rank's call fail with `mismatch`. If no operation is awaited, throws `mismatch`, unless `source`
///   asks for this rank's call: `source` then aborts the calls of all ranks itself.
///
/// Throws `corrupt_message` if `text` is malformed.
template <transport Net>
[[gnu::cold]] void on_call_note(Net& net, rank_t source, std::string_view text) {
  endpoint& node = net.node();
  call_note note;
  const call_view theirs = read_call(text, source, note);
  if (note.what == call_note::kind::differs) send_call_note(net, call_note::kind::answer, note.sequence, source);
  if (peer_question* const asked = node.question()) { // this rank waits for an answer from a peer
    // If the peer has found the same mismatch, the peer sends a question as well as an answer. Both describe the call
    // of the peer, and this rank uses the first to arrive.
    if (asked->answered || asked->peer != source || note.what == call_note::kind::waits) return;
    if (note.sequence != static_cast<std::uint32_t>(asked->sequence % header::sequences))
      return; // not about the call in question
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

} // namespace spar::detail
