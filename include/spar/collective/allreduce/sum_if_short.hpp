// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Recursive doubling that finds the largest number of entries of any rank and, if all streams on the way are short, the
// sum of the streams.
#pragma once

#include <spar/collective/allreduce/recursive_doubling.hpp>
#include <spar/collective/local/streams.hpp>
#include <spar/collective/wire/stream_wire.hpp>
#include <spar/core/memory/buffer.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/storage/wire.hpp>
#include <spar/topology/folded_ranks.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

namespace spar {

namespace detail {

/// What each rank of a group knows of the whole group, in recursive doubling.
template <element T, index_type Index>
struct group_sum {
  std::uint64_t largest = 0;                     ///< the largest number of entries of any rank
  std::optional<stream_view<T, Index>> sum = {}; ///< the sum; empty if a stream on the way to the sum was not short
  sparse_stream<T, Index> memory = {};           ///< the memory of `sum`, unless the group is one rank

  /// Forgets the sum unless the sum and `largest` fit into a short message.
  void forget_if_long() noexcept {
    if (sum && padded_bytes(encode(*sum).pieces) + padded_bytes(sizeof(largest)) > enclosed_bytes) sum.reset();
  }
};

/// A message of what a group knows: the sum, if known, and `largest` in piece 2. The group and this object must outlive
/// the send of the message.
template <class Codec, element T, index_type Index>
class outgoing_group {
 public:
  template <transport Net>
  task<payload> operator()(channel<Net> net, const group_sum<T, Index>& group, index_range all, Codec codec) {
    payload message{wire_format::absent};
    if (group.sum) message = co_await sum_(net, codec, *group.sum, all, 0);
    message.pieces[2] = std::as_bytes(local::place(net).to_message(std::span(&group.largest, 1), largest_));
    co_return message;
  }

 private:
  outgoing<Codec, T, Index> sum_;
  buffer<std::uint64_t> largest_; // a copy in device memory, if the sum is there
};

/// Returns the number in piece 2 of a message of an `outgoing_group`. Throws `corrupt_message` if the piece is no
/// number of at most n.
template <transport Net>
local::answer<Net, std::uint64_t> largest_in(channel<Net> net, const message_buffer& in, buffer<std::uint64_t>& copy,
                                             std::uint64_t n) {
  const auto checked = [n](std::span<const std::uint64_t> piece) {
    if (piece.size() == 1 && piece[0] <= n) return piece[0];
    raise<corrupt_message>({"a message about the largest number of entries has ", piece.size(), " numbers, the first ",
                            "of which is ", piece.empty() ? 0 : piece[0], "; expected one number of at most n = ", n});
  };
  return local::then(net, local::read_list(net, in.piece<std::uint64_t>(2), copy), checked);
}

/// Receives what the group of `peer` knows, and returns what this group and that group know together.
template <transport Net, element T, index_type Index, class DoublingOf, reduction<T> Op, class Codec>
task<group_sum<T, Index>> merge_group(channel<Net> net, rank_t peer, const group_sum<T, Index>& group, index_range all,
                                      DoublingOf by, Op op, Codec codec) {
  incoming<Codec, T, Index> in(net.value_memory());
  buffer<std::uint64_t> copy;
  co_await net.receive(peer, in);
  const std::uint64_t other_largest = co_await largest_in(net, in, copy, all.end);
  group_sum<T, Index> both{std::max(group.largest, other_largest)};
  if (group.sum && in.head().format != wire_format::absent) {
    const auto theirs = co_await in.view(net, codec, all);
    const auto& own = *group.sum;
    const bool lower = peer > net.rank();
    const std::uint64_t limit = by(both.largest).template dense_above<T, Index>(codec, all.end);
    both.memory = co_await local::merge(net, lower ? own : theirs, lower ? theirs : own, all, limit, op);
    both.sum = std::as_const(both.memory).view();
    net.compute(theirs.count() + own.count());
  }
  co_return both;
}

} // namespace detail

/// Sets `largest` to the largest number of entries of any rank. Returns the sum of the streams of all ranks, or nothing
/// if a stream on the way to the sum is not short (see enclosed_bytes). `by(k)` returns the `recursive_doubling` whose
/// option says when the sum of ranks with at most k entries turns dense.
///
/// Ranks exchange messages as in `recursive_doubling`. Each message contains the largest number of entries of a rank in
/// the sender's group, and the sum of the group if all streams so far are short. All ranks of a group know the same, so
/// all ranks agree on whether there is a result. The result may have any length.
///
/// The codec must be exact: otherwise, residuals would get the errors of sums that all ranks then forget. The caller
/// must await the task at once, because the task refers to `largest`.
template <transport Net, element T, index_type Index, class DoublingOf, reduction<T> Op, class Codec>
  requires(Codec::exact)
task<std::optional<sparse_stream<T, Index>>> sum_if_short(channel<Net> net, stream_view<T, Index> mine,
                                                          std::uint64_t& largest, DoublingOf by, Op op, Codec codec) {
  const folded_ranks folded(net.rank(), net.size());
  const index_range all{0, mine.dimension()};
  detail::group_sum<T, Index> group{mine.count(), mine};
  std::optional<sparse_stream<T, Index>> result;

  if (!folded.active()) {
    group.forget_if_long();
    detail::outgoing_group<Codec, T, Index> out;
    co_await net.send(folded.partner(), co_await out(net, group, all, codec));
    incoming<Codec, T, Index> whole(net.value_memory());
    buffer<std::uint64_t> copy;
    co_await net.receive(folded.partner(), whole);
    largest = co_await detail::largest_in(net, whole, copy, all.end);
    if (whole.head().format != wire_format::absent)
      result = local::duplicate(net, co_await whole.view(net, codec, all));
    co_return result;
  }

  if (folded.has_partner()) {
    group.forget_if_long();
    auto merging = detail::merge_group(net, folded.partner(), group, all, by, op, codec);
    group = co_await std::move(merging);
  }
  for (rank_t distance = 1; distance < folded.active_ranks(); distance *= 2) {
    const rank_t peer = folded.rank_of(folded.number() ^ distance);
    group.forget_if_long();
    detail::outgoing_group<Codec, T, Index> out;
    auto sending = net.send(peer, co_await out(net, group, all, codec));
    auto merging = detail::merge_group(net, peer, group, all, by, op, codec);
    auto both = co_await std::move(merging);
    co_await sending; // the send must end before `group` changes
    group = std::move(both);
  }
  if (folded.has_partner()) {
    detail::outgoing_group<Codec, T, Index> out;
    co_await net.send(folded.partner(), co_await out(net, group, all, codec));
  }

  largest = group.largest;
  if (group.sum) result = net.size() == 1 ? local::duplicate(net, mine) : std::move(group.memory);
  co_return result;
}

} // namespace spar
