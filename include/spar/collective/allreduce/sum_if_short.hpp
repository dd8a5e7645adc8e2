// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Recursive doubling that finds the largest number of entries of any rank and, if all streams on the way are short, the
// sum of the streams.
#pragma once

#include <spar/collective/local/streams.hpp>
#include <spar/collective/wire/stream_wire.hpp>
#include <spar/core/memory/buffer.hpp>
#include <spar/core/memory/pool.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/storage/storage.hpp>
#include <spar/storage/wire.hpp>
#include <spar/topology/folded_ranks.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace spar {

/// What each rank of a group knows of the whole group, in recursive doubling.
struct known_of_group {
  std::uint64_t largest = 0; ///< the largest number of entries of any rank
  bool sum = true;           ///< whether the sum is known: all streams on the way to the sum were short
};

namespace detail {

/// Whether a stream and a number fit into a short message.
template <element T, index_type Index>
bool is_short(const stream_view<T, Index>& v) noexcept {
  return padded_bytes(encode(v).pieces) + padded_bytes(sizeof(std::uint64_t)) <= enclosed_bytes;
}

/// Requests as much memory as a sum of two short streams takes, or a message with it, and frees it. A rank calls this
/// in place of each request for a sum that it does not know: if streams get shorter, more sums are known, but a call
/// with fewer entries than earlier calls must not request more memory (see `pool`).
template <transport Net>
void request_as_if_known(channel<Net> net) {
  const buffer<std::byte> room(net.value_memory(), 2 * enclosed_bytes + pool::alignment);
}

/// Returns a message with the sum of the group, if known, and the largest number in piece 2. The message refers to
/// `group` and `sum`, and to `copy` if the sum is in device memory.
template <transport Net, element T, index_type Index>
payload group_message(channel<Net> net, const known_of_group& group, const stream_view<T, Index>& sum,
                      buffer<std::uint64_t>& copy) {
  if (!group.sum) request_as_if_known(net);
  payload message = group.sum ? encode(sum) : payload{wire_format::absent};
  message.pieces[2] = std::as_bytes(local::place(net).to_message(std::span(&group.largest, 1), copy));
  return message;
}

/// Receives what the group of `peer` knows, adds it to `group`, and returns the sum of both groups, if known: that of
/// `own` and the peer's sum or, if `own` is null, the peer's sum. Throws `corrupt_message` if the message is malformed.
template <transport Net, element T, index_type Index, reduction<T> Op>
task<sparse_stream<T, Index>> learn(channel<Net> net, rank_t peer, known_of_group& group, index_range all,
                                    const stream_view<T, Index>* own, Op op) {
  incoming<storage::coo, T, Index> in(net.value_memory());
  co_await net.receive(peer, in);
  buffer<std::uint64_t> copy;
  const auto number = co_await local::read_list(net, in.template piece<std::uint64_t>(2), copy);
  if (number.size() != 1 || number[0] > all.end) {
    raise<corrupt_message>({"a message about the largest number of entries has ", number.size(), " numbers, the first ",
                            "of which is ", number.empty() ? 0 : number[0],
                            "; expected one number of at most n = ", all.end});
  }
  group.largest = std::max(group.largest, number[0]);
  group.sum = group.sum && in.head().format != wire_format::absent;
  if (!group.sum) {
    request_as_if_known(net); // for the message
    request_as_if_known(net); // for the sum
    co_return sparse_stream<T, Index>();
  }
  const auto theirs = co_await in.view(net, storage::coo(), all);
  if (own == nullptr) co_return local::duplicate(net, theirs);
  const bool lower = peer > net.rank();
  const std::uint64_t limit = storage::delta<T, Index>(storage::coo(), all.end);
  auto sum = co_await local::merge(net, lower ? *own : theirs, lower ? theirs : *own, all, limit, op);
  net.compute(theirs.count() + own->count());
  co_return sum;
}

} // namespace detail

/// Sets `group.largest` to the largest number of entries of any rank, and `group.sum` to whether all streams on the way
/// to the sum are short (see enclosed_bytes). If so, returns the sum of the streams of all ranks.
///
/// Ranks exchange messages as in `recursive_doubling`. Each message contains the largest number of entries of a rank in
/// the sender's group, and the sum of the group if all streams so far are short. All ranks of a group know the same, so
/// all ranks agree on whether there is a result. The result may have any length.
///
/// Messages are not encoded, as ranks do not know yet whether a code pays. `group` must outlive the task.
template <transport Net, element T, index_type Index, reduction<T> Op>
task<sparse_stream<T, Index>> sum_if_short(channel<Net> net, stream_view<T, Index> mine, known_of_group& group, Op op) {
  const folded_ranks folded(net.rank(), net.size());
  const index_range all{0, mine.dimension()};
  group = {mine.count(), net.size() == 1 || detail::is_short(mine)};
  buffer<std::uint64_t> copy;
  sparse_stream<T, Index> sum;
  stream_view<T, Index> have = mine;

  if (folded.has_partner()) {
    if (!folded.active()) co_await net.send(folded.partner(), detail::group_message(net, group, mine, copy));
    auto folding = detail::learn(net, folded.partner(), group, all, folded.active() ? &mine : nullptr, op);
    sum = co_await std::move(folding);
    if (!folded.active()) co_return sum;
    have = std::as_const(sum).view();
  }
  for (rank_t distance = 1; distance < folded.active_ranks(); distance *= 2) {
    const rank_t peer = folded.rank_of(folded.number() ^ distance);
    group.sum = group.sum && detail::is_short(have);
    const known_of_group sent = group;
    auto sending = net.send(peer, detail::group_message(net, sent, have, copy));
    auto learning = detail::learn(net, peer, group, all, &have, op);
    auto next = co_await std::move(learning);
    co_await sending; // the send must end before `sum` changes
    sum = std::move(next);
    have = std::as_const(sum).view();
  }
  if (folded.has_partner()) co_await net.send(folded.partner(), detail::group_message(net, group, have, copy));
  if (net.size() == 1) sum = local::duplicate(net, mine);
  co_return sum;
}

} // namespace spar
