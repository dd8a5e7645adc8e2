// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The errors of operations that are awaited in vain: because the peer has left, or because the deadline has expired.
// The error of an expired deadline follows the chain of waits: the rank asks its peer for what the peer waits, then the
// rank for which the peer waits, and so on, until a rank waits for nothing or does not answer.
#pragma once

#include <spar/core/util/algobase.hpp>
#include <spar/runtime/transport_concept.hpp>

#include <array>
#include <cstddef>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>

#include <sched.h>

namespace spar::detail {

/// Describes the awaited operation `r` of the rank `node`, as in "for a message from rank 0 (collective 3, lane 0)".
[[gnu::cold]] inline std::string awaited(endpoint& node, const operation_record& r) {
  if (r.tag < 0) return sentence("for rank 0 to start the collective named ", static_cast<const call_name&>(r).text);
  const call_record* const call = node.calls().find(sequence_of(r.tag));
  const std::string which = call != nullptr && call->name != nullptr
                                ? sentence("collective named ", call->name->text.c_str())
                                : sentence("collective ", sequence_of(r.tag));
  return sentence("for a message ", r.receives ? "from" : "to", " rank ", r.peer,
                  r.receives ? " (" : " to be received (", which, ", lane ", static_cast<unsigned>(lane_of(r.tag)),
                  ")");
}

/// Makes the awaited operation `r` of the rank `node` fail with the error `Error`, whose text has the given parts.
template <class Error, class... Parts>
[[gnu::cold]] void fail_wait(endpoint& node, operation_record& r, const Parts&... parts) {
  try {
    raise<Error>({parts...});
  } catch (...) {
    r.error = std::current_exception();
  }
  node.note_wait_error(r.error);
  r.wake(node.scheduler());
}

/// Makes the longest awaited operation fail with `peer_failed` whose peer has left without taking part in the call.
/// Returns whether there was one.
[[gnu::cold]] inline bool fail_wait_for_leaver(endpoint& node) {
  waiting_list& waiting = node.waits().active();
  for (operation_record* r = waiting.first(); r != nullptr; r = waiting.after(*r)) {
    const calls_of_leaver* const calls = node.leavers().find(r->peer);
    if (calls == nullptr) continue;
    const call_record* const call = r->tag < 0 ? nullptr : node.calls().find(sequence_of(r->tag));
    if (r->tag >= 0 && (call == nullptr || !calls->lack(call->sequence))) continue;
    const bool is_named = call != nullptr && call->name != nullptr;
    fail_wait<peer_failed>(
        node, *r, "rank ", r->peer, " has left (calls ",
        is_named ? "of this name: " : "without a name: ", is_named ? calls->like(call->sequence) : calls->unnamed(),
        "), but rank ", node.rank(), " waits ", awaited(node, *r));
    return true;
  }
  return false;
}

/// What a rank says about its longest wait: the rank for which it waits, or -1, and a text such as "waits for ...".
struct wait_state {
  rank_t peer = -1;
  bounded_text text{};
};
[[gnu::cold]] inline wait_state wait_state_of(endpoint& node) {
  wait_state its;
  if (node.dead() || node.wait_error()) { // the call of a wait that has failed is about to abort the communicator
    its.text.add("has given up: ");
    its.text.add(node.dead() ? node.failure().reason() : message_of(node.wait_error()).view());
  } else if (const operation_record* const r = node.waits().active().first()) {
    its.peer = r->tag < 0 ? 0 : r->peer;
    its.text.add("waits ");
    its.text.add(awaited(node, *r));
  } else {
    its.text.add(node.calls().any() ? "has a call in flight, but waits for no message" : "is in no call");
    its.text.add(" (calls without a name: ");
    its.text.add_part(node.calls().unnamed());
    its.text.add(")");
  }
  return its;
}

/// Asks `peer` for what it waits, and waits for the answer for at most one second, and at most the deadline.
template <transport Net>
[[gnu::cold]] wait_state query_peer_wait(Net& net, rank_t peer) {
  endpoint& node = net.node();
  if (endpoint* const other = node.neighbour(peer)) return wait_state_of(*other);
  wait_state its;
  if (const calls_of_leaver* const calls = node.leavers().find(peer)) {
    its.text.add("has left (calls without a name: ");
    its.text.add_part(calls->unnamed());
    its.text.add(")");
    return its;
  }
  peer_question& asked = *node.wait_question();
  asked = {peer, 0};
  send_text(net, control_message::purpose::wait, "?", peer);
  const double patience = std::min(1.0, node.deadline());
  for (const double end = net.now() + patience; !asked.answered && !node.dead() && net.now() < end; sched_yield()) {
    net.progress(false);
  }
  const std::string_view answer = asked.answer.view();
  if (answer.size() > sizeof(rank_t)) {
    std::memcpy(&its.peer, answer.data(), sizeof(rank_t));
    its.text.add(answer.substr(sizeof(rank_t)));
  } else {
    its.text.add("has not answered for ");
    its.text.add_part(patience);
    its.text.add(" s: it runs code outside of spar, or has ended");
  }
  return its;
}

/// Handles `text`, a question of the rank `source` for what this rank waits, or an answer to such a question.
template <transport Net>
[[gnu::cold]] void on_wait_note(Net& net, rank_t source, std::string_view text) {
  endpoint& node = net.node();
  if (text == "?") {
    const wait_state own = wait_state_of(node);
    bounded_text answer;
    answer.add({reinterpret_cast<const char*>(&own.peer), sizeof(own.peer)});
    answer.add(own.text.view());
    return send_text(net, control_message::purpose::wait, answer.view(), source);
  }
  peer_question* const asked = node.wait_question();
  if (asked == nullptr || asked->answered || asked->peer != source) return; // an answer that comes too late
  asked->answered = true;
  asked->answer.add(text);
}

/// Tells all other ranks that this rank leaves, that is, starts no call any more. Does nothing if the communicator is
/// dead, or while a call of this rank is in flight. A rank without memory is silent: its peers end at their deadline.
template <transport Net>
[[gnu::cold]] void tell_left(Net& net) noexcept {
  if (net.node().dead() || net.node().busy()) return;
  try {
    broadcast_text(net, control_message::purpose::left, net.node().calls_so_far().text());
  } catch (...) {
  }
}

/// Follows the chain of waits that begins with the rank `peer`, and describes its first three ranks and its last.
template <transport Net>
[[gnu::cold]] std::string chain_of_waits(Net& net, rank_t peer) {
  endpoint& node = net.node();
  std::string text;
  std::array<rank_t, 64> visited{};
  for (std::size_t hops = 0; hops < visited.size(); ++hops) {
    for (std::size_t i = 0; i < hops; ++i) {
      if (visited[i] == peer) return text + "; these ranks wait for each other";
    }
    if (peer == node.rank()) return text + "; these ranks wait for each other";
    visited[hops] = peer;
    const wait_state its = query_peer_wait(net, peer);
    const bool is_last = its.peer < 0 || its.peer >= net.size() || hops + 1 == visited.size();
    if (hops < 3 || is_last) text += sentence(hops > 3 ? "; and so on; rank " : "; rank ", peer, " ", its.text.c_str());
    if (is_last) break;
    peer = its.peer;
  }
  return text;
}

/// Makes the operation `r`, whose deadline has expired, fail with `timeout`, unless it ends while this rank asks its
/// peers for what they wait.
template <transport Net>
[[gnu::cold]] void time_out(Net& net, operation_record& r) {
  endpoint& node = net.node();
  if (node.wait_question() != nullptr) return; // called by `progress` while this rank asks
  std::string others;
  {
    peer_question asked{r.peer, 0};
    const scheduler::pause none_resumed(node.scheduler());
    const struct asking {
      asking(endpoint& its, peer_question* what) : node(&its) { node->ask_for_wait(what); }
      asking(const asking&) = delete;
      ~asking() { node->ask_for_wait(nullptr); }
      endpoint* node;
    } until_here(node, &asked);
    others = chain_of_waits(net, r.tag < 0 ? 0 : r.peer);
  }
  if (!r.waiting) return;
  fail_wait<timeout>(node, r, "rank ", node.rank(), " has waited for ", node.deadline(), " s ", awaited(node, r),
                     others);
}

} // namespace spar::detail
