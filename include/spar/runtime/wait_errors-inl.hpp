// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions of wait_errors.hpp that do not depend on the type of values.
#pragma once

#include <spar/runtime/wait_errors.hpp>

namespace spar::inline v0_1::detail {

SPAR_INLINE joined_text awaited(endpoint& node, const operation_record& r) {
  if (r.tag < 0) return {"for rank 0 to start the collective named ", static_cast<const call_name&>(r).text.c_str()};
  const std::uint64_t number = sequence_of(r.tag);
  const call_record* const call = node.calls().find(number);
  const char* const name = call != nullptr && call->name != nullptr ? call->name->text.c_str() : nullptr;
  const joined_text which = name != nullptr ? joined_text("named ", name) : joined_text(number);
  return {r.receives ? "for a message from" : "for a message to",
          " rank ",
          r.peer,
          r.receives ? " (collective " : " to be received (collective ",
          which.c_str(),
          ", lane ",
          lane_of(r.tag),
          ")"};
}

SPAR_INLINE void fail_wait(const control_port& net, operation_record& r, rank_t failed) {
  r.error = std::current_exception();
  r.wake(net.scheduler());
  detail::abort(net, message_of(r.error).view(), failed);
}

SPAR_INLINE joined_text number_of(const calls_of_leaver& calls, tag_t tag) {
  const std::uint64_t call = tag < 0 ? 0 : sequence_of(tag);
  return {" (calls ", calls.counts_name(call) ? "of this name: " : "without a name: ", calls.like(call), ")"};
}

SPAR_INLINE bool fail_wait_for_leaver(const control_port& net, double now) {
  endpoint& node = net.node();
  waiting_list& waiting = node.waits().active();
  for (operation_record* r = waiting.first(); r != nullptr; r = waiting.after(*r)) {
    calls_of_leaver* const calls = node.leavers().find(r->peer);
    if (calls == nullptr) continue;
    const call_record* const call = r->tag < 0 ? nullptr : node.calls().find(sequence_of(r->tag));
    rank_t failed = node.rank();
    try {
      if (call == nullptr && r->tag >= 0) continue;
      const bool took_part = call != nullptr && !calls->lack(call->sequence);
      if (took_part) compare_calls(net, *call, r->peer);
      if (took_part && !calls->is_silent(r->since, now, node.leavers().late())) continue;
      failed = r->peer;
      raise<peer_failed>({"rank ", r->peer, " has left", number_of(*calls, r->tag).c_str(), ", but rank ", node.rank(),
                          " waits ", awaited(node, *r).c_str(), "; all ranks must make the same calls"});
    } catch (...) {
      fail_wait(net, *r, failed);
    }
    return true;
  }
  return false;
}

SPAR_INLINE wait_state wait_state_of(endpoint& node, tag_t tag) {
  if (node.dead()) return {-1, "has given up: ", node.failure().reason().data()};
  if (const operation_record* const r = node.waits().active().first())
    return {r->tag < 0 ? 0 : r->peer, "waits ", awaited(node, *r).c_str()};
  return {-1, node.calls().any() ? "has a call in flight, but waits for no message" : "is in no call",
          number_of(node.calls_so_far(), tag).c_str()};
}

SPAR_INLINE wait_state query_peer_wait(const control_port& net, rank_t peer, tag_t tag) {
  endpoint& node = net.node();
  if (endpoint* const other = node.neighbour(peer)) return wait_state_of(*other, tag);
  if (const calls_of_leaver* const calls = node.leavers().find(peer))
    return {-1, "has left", number_of(*calls, tag).c_str()};
  const peer_question asked(node.wait_question(), node.scheduler(), peer);
  send_text(net, control_message::purpose::wait, {reinterpret_cast<const char*>(&tag), sizeof(tag)}, peer);
  const double patience = std::min(1.0, node.deadline());
  asked.await(net, patience);
  if (asked.answer.size() > sizeof(rank_t)) return wait_state(asked.answer);
  return {-1, "has not answered for ", patience, " s: it runs code outside of spar, or has ended"};
}

SPAR_INLINE void on_wait_note(const control_port& net, rank_t source, std::string_view text) {
  if (tag_t tag = 0; text.size() == sizeof(tag)) {
    std::memcpy(&tag, text.data(), sizeof(tag));
    return send_text(net, control_message::purpose::wait, wait_state_of(net.node(), tag).bytes(), source);
  }
  peer_question* const asked = net.node().wait_question();
  if (asked == nullptr || asked->answered || asked->peer != source) return; // an answer that comes too late
  asked->answered = true;
  asked->answer.add(text);
}

SPAR_INLINE void tell_left(const control_port& net) noexcept {
  if (net.node().dead() || net.node().busy()) return;
  try {
    broadcast_text(net, control_message::purpose::left, net.node().calls_so_far().text());
  } catch (...) {
  }
}

SPAR_INLINE void add_chain_of_waits(joined_text& to, const control_port& net, const operation_record& r) {
  std::array<rank_t, 65> visited{net.rank()};
  rank_t peer = r.tag < 0 ? 0 : r.peer;
  for (std::size_t hops = 1;; ++hops) {
    for (std::size_t i = 0; i < hops; ++i) {
      if (visited[i] == peer) return to.add("; these ranks wait for each other");
    }
    const wait_state waits = query_peer_wait(net, peer, r.tag);
    visited[hops] = peer;
    peer = waits.peer();
    const bool is_last = peer < 0 || peer >= net.size() || hops + 1 == visited.size();
    if (hops <= 3 || is_last) to.add(hops > 4 ? "; and so on; rank " : "; rank ", visited[hops], " ", waits.text());
    if (is_last) return;
  }
}

SPAR_INLINE void time_out(const control_port& net, operation_record& r) {
  endpoint& node = net.node();
  if (node.wait_question() != nullptr) return; // called by `progress` while this rank asks
  joined_text others("");
  add_chain_of_waits(others, net, r);
  if (!r.waiting) return;
  try {
    raise<timeout>(
        {"rank ", node.rank(), " has waited for ", node.deadline(), " s ", awaited(node, r).c_str(), others.c_str()});
  } catch (...) {
    fail_wait(net, r, node.rank());
  }
}

} // namespace spar::inline v0_1::detail
