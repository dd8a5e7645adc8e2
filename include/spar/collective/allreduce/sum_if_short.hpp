// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Recursive doubling of short streams, which also finds the largest number of entries of any rank, for what follows if
// a stream is not short.
#pragma once

#include <spar/collective/wire/stream_wire.hpp>
#include <spar/core/memory/buffer.hpp>
#include <spar/core/memory/pool.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/storage/storage.hpp>
#include <spar/storage/wire.hpp>
#include <spar/topology/folded_ranks.hpp>
#include <spar/workspace/workspace.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

namespace spar::inline v0_1 {

namespace detail {

/// What each rank of a group knows of the whole group, in recursive doubling.
struct known_of_group {
  std::uint64_t largest; ///< the largest number of entries of any rank
  bool sum = true;       ///< whether the sum is known: all streams on the way to the sum were short
};

/// Whether a stream and a number fit into a short message.
template <element T, index_type Index>
bool is_short(const stream_view<T, Index>& v) noexcept {
  return padded_bytes(view_message(v).pieces) + padded_bytes(sizeof(std::uint64_t)) <= enclosed_bytes;
}

/// Requests as much memory as a sum of two short streams takes, or a message with it, and frees it. A rank calls this
/// in place of each request for a sum that it does not know: if streams get shorter, more sums are known, but a call
/// with fewer entries than earlier calls must not request more memory (see `pool`).
template <transport Net>
void request_as_if_known(channel<Net> net) {
  const buffer<std::byte> room(net.work().memory(), 2 * enclosed_bytes + pool::alignment);
}

/// Returns a message with the sum of the group, if known, and the largest number in piece 2. The message refers to
/// `group` and `sum`, and to `copy` if the sum is in device memory.
template <transport Net, element T, index_type Index>
payload group_message(channel<Net> net, const known_of_group& group, const stream_view<T, Index>& sum,
                      buffer<std::uint64_t>& copy) {
  if (!group.sum) request_as_if_known(net);
  payload message = group.sum ? view_message(sum) : payload{wire_format::absent};
  message.pieces[2] = std::as_bytes(net.work().to_message(std::span(&group.largest, 1), copy));
  return message;
}

/// Adds what the group of a peer knows to `group`: `number`, the largest number of entries of a rank, at most n, and
/// `sum`, whether the sum is known. Throws `corrupt_message` if `number` is malformed.
inline void learn(known_of_group& group, std::span<const std::uint64_t> number, bool sum, std::uint64_t n) {
  if (number.size() != 1 || number[0] > n) {
    raise<corrupt_message>({"a message about the largest number of entries has ", number.size(), " numbers, the first ",
                            "of which is ", number.empty() ? 0 : number[0],
                            "; expected one number of at most n = ", n});
  }
  group.largest = std::max(group.largest, number[0]);
  group.sum = group.sum && sum;
}

} // namespace detail

/// Returns the sum of the streams of all ranks if all streams on the way to the sum are short (see enclosed_bytes).
/// Otherwise returns the result of the task `otherwise(k)`, where k is the largest number of entries of any rank.
///
/// Ranks exchange messages as in `recursive_doubling`. Each message contains the largest number of entries of a rank in
/// the sender's group, and the sum of the group if all streams so far are short. All ranks of a group know the same, so
/// all ranks agree on whether the sum is known. The sum may have any length.
///
/// Messages are not encoded: ranks do not know yet whether a code pays.
template <transport Net, element T, index_type Index, reduction<T> Op, class Otherwise>
task<sparse_stream<T, Index>> sum_if_short(channel<Net> net, stream_view<T, Index> mine, Op op, Otherwise otherwise) {
  const folded_ranks folded(net.rank(), net.size());
  const index_range all{0, mine.dimension()};
  const std::uint64_t limit = storage::delta<T, Index>(storage::coo(), mine.dimension());
  detail::known_of_group group{mine.count()};
  buffer<std::uint64_t> copy;
  sparse_stream<T, Index> sum;
  stream_view<T, Index> have = mine;

  // A folded pair begins with a round at distance 0, in which its active rank only receives.
  for (rank_t distance = folded.has_partner() ? 0 : 1; distance < folded.active_ranks();
       distance += std::max(distance, 1)) {
    const rank_t peer = distance == 0 ? folded.partner() : folded.rank_of(folded.number() ^ distance);
    group.sum = group.sum && detail::is_short(have);
    const detail::known_of_group sent = group;
    const bool sends = distance > 0 || !folded.active();
    auto sending = sends ? std::optional(net.send(peer, detail::group_message(net, sent, have, copy))) : std::nullopt;

    incoming<storage::coo, T, Index> in(net.work().memory());
    co_await net.receive(peer, in);
    buffer<std::uint64_t> room;
    const auto number = co_await net.work().read_list(in.template piece<std::uint64_t>(2), room);
    detail::learn(group, number, in.head().format != wire_format::absent, mine.dimension());
    sparse_stream<T, Index> next;
    if (group.sum) {
      const auto theirs = co_await in.view(net, storage::coo(), all);
      if (folded.active()) {
        const bool lower = peer > net.rank();
        next = co_await net.work().merge(lower ? have : theirs, lower ? theirs : have, all, limit, op);
        net.compute(theirs.count() + have.count());
      } else {
        next = net.work().duplicate(theirs);
      }
    }
    in.release();
    if (!group.sum) {
      detail::request_as_if_known(net); // for the message
      detail::request_as_if_known(net); // for the sum
    }
    if (sending) co_await *sending; // the send must end before `sum` changes
    sum = std::move(next);
    have = std::as_const(sum).view();
    if (!folded.active()) break;
  }
  if (folded.has_partner() && folded.active())
    co_await net.send(folded.partner(), detail::group_message(net, group, have, copy));
  if (!group.sum) {
    auto running = otherwise(group.largest);
    co_return co_await std::move(running);
  }
  if (net.size() == 1) sum = net.work().duplicate(mine);
  co_return sum;
}

} // namespace spar::inline v0_1
