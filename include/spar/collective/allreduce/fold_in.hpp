// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Messages between inactive ranks and their active partners (see folded_ranks), before and after an allreduce among
// the active ranks, whose number is a power of two (Rabenseifner 2004).
#pragma once

#include <spar/collective/wire/stream_wire.hpp>
#include <spar/core/op.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/storage/merge.hpp>
#include <spar/storage/sparse_stream.hpp>
#include <spar/topology/folded_ranks.hpp>
#include <spar/workspace/workspace.hpp>

#include <cstdint>
#include <span>

namespace spar {

/// Folds dense values in place, on a rank that has a partner. An active rank receives the values of its inactive
/// partner, which are the left operands, and reduces them into `x`. An inactive rank sends `x` to its active partner
/// and then waits for the result of the whole allreduce, which replaces `x`.
template <transport Net, element T, reduction<T> Op>
task<void> fold_in(channel<Net> net, folded_ranks folded, std::span<T> x, Op op) {
  message_buffer theirs(net.work().memory());
  if (!folded.active()) {
    co_await net.send(folded.partner(), view_message<T>(x));
    theirs.place(0, x);
    co_await net.receive(folded.partner(), theirs);
    co_return;
  }
  // Copies the partner's values to this rank's memory, because the partner's `x` will receive the result.
  theirs.expect(x.size_bytes());
  co_await net.receive(folded.partner(), theirs);
  net.work().reduce_left(x, theirs.piece<T>(0).data(), op);
  net.compute(x.size());
}

/// Folds streams, whose indices lie in `range`, on a rank that has a partner. An active rank returns the sum of both
/// partners' streams, which is dense if either stream is dense or both streams together have more than `limit` entries.
/// An inactive rank sends its stream to its active partner and returns an empty stream; the caller later receives the
/// result from the partner. Adds the rounding errors of this rank's encoding to `residual`, unless `residual` is empty.
template <transport Net, element T, index_type Index, reduction<T> Op, class Storage>
task<sparse_stream<T, Index>> fold_in(channel<Net> net, folded_ranks folded, stream_view<T, Index> mine,
                                      index_range range, std::uint64_t limit, Op op, Storage store,
                                      residual_view<T> residual) {
  if (!folded.active()) {
    outgoing<Storage, T, Index> out;
    co_await net.send(folded.partner(), co_await out(net, store, mine, range, step_of(0, net.rank())));
    out.keep_error(net, store, mine, range, residual);
    co_return sparse_stream<T, Index>();
  }
  incoming<Storage, T, Index> theirs(net.work().memory());
  co_await net.receive(folded.partner(), theirs);
  const auto lower = co_await theirs.view(net, store, range);
  auto sum = co_await net.work().merge(lower, mine, range, limit, op);
  net.compute(lower.count() + mine.count());
  co_return sum;
}

} // namespace spar
