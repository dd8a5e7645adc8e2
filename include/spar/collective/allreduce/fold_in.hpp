// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The messages of folded ranks, before and after an allreduce among a power of two of active ranks (Rabenseifner 2004).
#pragma once

#include <spar/collective/wire/stream_wire.hpp>
#include <spar/core/op.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/storage/kernel/dense.hpp>
#include <spar/storage/merge.hpp>
#include <spar/storage/sparse_stream.hpp>
#include <spar/topology/fold.hpp>

#include <cstdint>
#include <span>

namespace spar {

/// Adds the values of each inactive rank to those of its active partner, in place; only for ranks that have a partner.
/// On an inactive rank the call ends when the partner has sent the result of the whole allreduce, which is then in `x`.
template <transport Net, element T, reduction<T> Op>
task<void> fold_in(channel<Net> net, fold folded, std::span<T> x, Op op) {
  message_buffer theirs(net.memory());
  if (!folded.active()) {
    co_await net.send(folded.partner(), encode<T>(x));
    theirs.place(0, x);
    co_await net.receive(folded.partner(), theirs);
    co_return;
  }
  theirs.expect(x.size_bytes()); // in memory of this rank, as the partner is about to change its own
  co_await net.receive(folded.partner(), theirs);
  kernel::reduce_left(x.data(), theirs.piece<T>(0).data(), x.size(), op);
  net.compute(x.size());
}

/// Like the overload above, for streams: returns the sum of both contributions on the active rank, which turns dense
/// above `limit` entries, and an empty stream on the inactive rank, which gets the result by `fold_out`. Adds the
/// rounding errors of this rank's encoding to `residual`, unless `residual` is empty.
template <transport Net, element T, index_type Index, reduction<T> Op, class Storage>
task<sparse_stream<T, Index>> fold_in(channel<Net> net, fold folded, stream_view<T, Index> mine, std::uint64_t limit,
                                      Op op, Storage store, std::span<T> residual) {
  const index_range all{0, mine.dimension()};
  if (!folded.active()) {
    outgoing<Storage, T, Index> out;
    co_await net.send(folded.partner(), out(net, store, mine, all, step_of(0, net.rank())));
    out.keep_lost(net, store, mine, all, residual);
    co_return sparse_stream<T, Index>();
  }
  incoming<Storage, T, Index> theirs(net.memory());
  co_await net.receive(folded.partner(), theirs);
  const auto lower = theirs.view(net, store, all);
  auto sum = merge(lower, mine, all, limit, op, net.memory());
  net.compute(lower.count() + mine.count());
  co_return sum;
}

/// Receives, on an inactive rank, the result of the whole allreduce, which its active partner sends as a stream.
template <index_type Index, element T, transport Net, class Storage>
task<sparse_stream<T, Index>> fold_out(channel<Net> net, fold folded, std::uint64_t n, Storage store) {
  incoming<Storage, T, Index> whole(net.memory());
  co_await net.receive(folded.partner(), whole);
  co_return sparse_stream<T, Index>::copy(net.memory(), whole.view(net, store, {0, n}));
}

} // namespace spar
