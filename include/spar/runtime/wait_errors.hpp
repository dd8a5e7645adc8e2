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
[[gnu::cold]] joined_text awaited(endpoint& node, const operation_record& r);

/// Makes the awaited operation `r` fail with the exception that is being handled, and aborts because the rank `failed`
/// has failed.
[[gnu::cold]] void fail_wait(const control_port& net, operation_record& r, rank_t failed);

/// The number of calls without a name of a rank or, if it is known, of those with the name of the message with the tag
/// `tag`, as in " (calls of this name: 3)".
[[gnu::cold]] joined_text number_of(const calls_of_leaver& calls, tag_t tag);

/// Looks for awaited operations whose peer has left, and makes the longest awaited of those fail that cannot end any
/// more:
///
/// - with `mismatch` if the peer has made another call with the same number; the failed rank is then this rank;
/// - with `peer_failed` if the peer has not started the call or, at the time `now`, no message of the peer can be under
///   way any more; the failed rank is then the peer.
///
/// Returns whether an operation has failed.
[[gnu::cold]] bool fail_wait_for_leaver(const control_port& net, double now);

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
[[gnu::cold]] wait_state wait_state_of(endpoint& node, tag_t tag);

/// Asks `peer` for what it waits, and waits for the answer for at most one second, and at most the deadline. This rank
/// waits for a message with the tag `tag`.
[[gnu::cold]] wait_state query_peer_wait(const control_port& net, rank_t peer, tag_t tag);

/// Handles `text`, a question of the rank `source` for what this rank waits, which is the tag of the message for which
/// `source` waits, or the longer answer to such a question.
[[gnu::cold]] void on_wait_note(const control_port& net, rank_t source, std::string_view text);

/// Tells all other ranks that this rank leaves, that is, starts no call any more. Does nothing if the communicator is
/// dead, or while a call of this rank is in flight. A rank without memory is silent: its peers end at their deadline.
[[gnu::cold]] void tell_left(const control_port& net) noexcept;

/// Follows the chain of waits that begins with the awaited operation `r`, and describes the first three ranks and the
/// last.
[[gnu::cold]] void add_chain_of_waits(joined_text& to, const control_port& net, const operation_record& r);

/// Makes the operation `r`, whose deadline has expired, fail with `timeout`, unless it ends while this rank asks its
/// peers for what they wait.
[[gnu::cold]] void time_out(const control_port& net, operation_record& r);

} // namespace spar::inline v0_1::detail

#ifndef SPAR_COMPILED
#include <spar/runtime/wait_errors-inl.hpp>
#endif
