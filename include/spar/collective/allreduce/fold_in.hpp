// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Messages between inactive ranks and their active partners (see folded_ranks), before and after an allreduce of dense
// values among the active ranks, whose number is a power of two (Rabenseifner 2004).
#pragma once

#include <spar/core/op.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/storage/wire.hpp>
#include <spar/topology/folded_ranks.hpp>
#include <spar/workspace/workspace.hpp>

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

} // namespace spar
