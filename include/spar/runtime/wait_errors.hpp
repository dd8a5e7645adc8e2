// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The errors of operations that are awaited in vain: because the peer has left, or because the deadline has expired.
// The error of an expired deadline follows the chain of waits: the rank asks its peer for what the peer waits, then the
// rank for which the peer waits, and so on, until a rank waits for nothing or does not answer.
#pragma once

#include <spar/core/util/algobase.hpp>
#include <spar/runtime/abort.hpp>
#include <spar/runtime/peer_query.hpp>
#include <spar/runtime/transport_concept.hpp>

#include <array>
#include <cstddef>
#include <cstring>
#include <exception>
#include <string_view>

namespace spar::inline v0_1::detail {

/// Describes the awaited operation `r` of the rank `node`, as in "for a message from rank 0 (collective 3, lane 0)".
[[gnu::cold]] inline joined_text awaited(endpoint& node, const operation_record& r) {
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

/// Makes the awaited operation `r` fail with the exception that is being handled, and aborts because the rank `failed`
/// has failed.
template <transport Net>
[[gnu::cold]] void fail_wait(Net& net, operation_record& r, rank_t failed) {
  r.error = std::current_exception();
  r.wake(net.scheduler());
  detail::abort(net, message_of(r.error).view(), failed);
}

/// The number of calls without a name of a rank or, if it is known, of those with the name of the message with the tag
/// `tag`, as in " (calls of this name: 3)".
[[gnu::cold]] inline joined_text number_of(const calls_of_leaver& calls, tag_t tag) {
  const std::uint64_t call = tag < 0 ? 0 : sequence_of(tag);
  return {" (calls ", calls.counts_name(call) ? "of this name: " : "without a name: ", calls.like(call), ")"};
}

/// Looks for awaited operations whose peer has left, and makes the longest awaited of those fail that cannot end any
/// more:
///
/// - with `mismatch` if the peer has made another call with the same number; the failed rank is then this rank;
/// - with `peer_failed` if the peer has not started the call or, at the time `now`, no message of the peer can be under
///   way any more; the failed rank is then the peer.
///
/// Returns whether an operation has failed.
template <transport Net>
[[gnu::cold]] bool fail_wait_for_leaver(Net& net, double now) {
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

/// What a rank says about its longest wait: the rank for which it waits, or -1, and a text such as "waits for ...".
/// Consists of the bytes that an answer contains.
class wait_state {
 public:
  template <class... Parts>
  wait_state(rank_t peer, Parts... parts) noexcept {
    bytes_.add({reinterpret_cast<const char*>(&peer), sizeof(peer)});
    bytes_.add_parts(parts...);
  }
  explicit wait_state(const bounded_text& answer) noexcept : bytes_(answer) {}
  [[nodiscard]] rank_t peer() const noexcept {
    rank_t rank = -1;
    std::memcpy(&rank, bytes_.c_str(), sizeof(rank));
    return rank;
  }
  [[nodiscard]] const char* text() const noexcept { return bytes_.c_str() + sizeof(rank_t); }
  [[nodiscard]] std::string_view bytes() const noexcept { return bytes_.view(); }

 private:
  bounded_text bytes_;
};
/// The state of `node`, for a rank that waits for a message with the tag `tag`.
[[gnu::cold]] inline wait_state wait_state_of(endpoint& node, tag_t tag) {
  if (node.dead()) return {-1, "has given up: ", node.failure().reason().data()};
  if (const operation_record* const r = node.waits().active().first())
    return {r->tag < 0 ? 0 : r->peer, "waits ", awaited(node, *r).c_str()};
  return {-1, node.calls().any() ? "has a call in flight, but waits for no message" : "is in no call",
          number_of(node.calls_so_far(), tag).c_str()};
}

/// Asks `peer` for what it waits, and waits for the answer for at most one second, and at most the deadline. This rank
/// waits for a message with the tag `tag`.
template <transport Net>
[[gnu::cold]] wait_state query_peer_wait(Net& net, rank_t peer, tag_t tag) {
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

/// Handles `text`, a question of the rank `source` for what this rank waits, which is the tag of the message for which
/// `source` waits, or the longer answer to such a question.
template <transport Net>
[[gnu::cold]] void on_wait_note(Net& net, rank_t source, std::string_view text) {
  if (tag_t tag = 0; text.size() == sizeof(tag)) {
    std::memcpy(&tag, text.data(), sizeof(tag));
    return send_text(net, control_message::purpose::wait, wait_state_of(net.node(), tag).bytes(), source);
  }
  peer_question* const asked = net.node().wait_question();
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

/// Follows the chain of waits that begins with the awaited operation `r`, and describes the first three ranks and the
/// last.
template <transport Net>
[[gnu::cold]] void add_chain_of_waits(joined_text& to, Net& net, const operation_record& r) {
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

/// Makes the operation `r`, whose deadline has expired, fail with `timeout`, unless it ends while this rank asks its
/// peers for what they wait.
template <transport Net>
[[gnu::cold]] void time_out(Net& net, operation_record& r) {
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
