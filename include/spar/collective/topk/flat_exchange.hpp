// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How entries get to their owners and back on a topology without a plan: directly to each owner, and balanced before
// they are gathered (Ok-Topk, sections 3.1.1 and 3.1.2).
#pragma once

#include <spar/collective/allreduce/split.hpp>
#include <spar/collective/topk/balance_and_allgather.hpp>
#include <spar/topology/flat.hpp>
#include <spar/topology/ownership.hpp>

#include <cstdint>
#include <span>
#include <utility>

namespace spar {

/// Returns the sums of the indices between this rank's `bounds`, as a sparse stream. Adds the rounding errors of this
/// rank's encodings to `residual`, unless `residual` is empty, as do the functions that gather the sums.
template <transport Net, straight_topology Topology, element T, index_type Index, reduction<T> Op, class Storage>
task<sparse_stream<T, Index>> reduce_to_owners(channel<Net> net, const Topology&, stream_view<T, Index> mine,
                                               std::span<const std::uint64_t> bounds, Op op, Storage store,
                                               std::span<T> residual) {
  return split_phase(net, mine, bounded_ownership{bounds}, op, static_cast<T*>(nullptr), store, residual);
}

/// Gathers all ranks' sparse blocks, whose numbers of entries all ranks know: `shares` holds where each rank's block
/// begins among all entries, and the number of all entries. Sets `evened` to whether the blocks were balanced first.
template <transport Net, straight_topology Topology, element T, index_type Index, class Storage>
task<sparse_stream<T, Index>> gather_shares(channel<Net> net, const Topology&, sparse_stream<T, Index> mine,
                                            std::span<const std::uint64_t>, std::span<const std::uint64_t> shares,
                                            bool& evened, Storage store, std::span<T> residual) {
  return balance_and_allgather(net, std::move(mine), shares, evened, store, residual);
}

/// Gathers all ranks' blocks, which follow each other in rank order; the result is dense if that is smaller.
template <transport Net, straight_topology Topology, element T, index_type Index, reduction<T> Op, class Storage>
task<sparse_stream<T, Index>> gather_blocks(channel<Net> net, Topology, stream_view<T, Index> block,
                                            std::span<const std::uint64_t>, Op op, Storage store,
                                            std::span<T> residual) {
  gathered<T, Index> parts(block, static_cast<std::size_t>(net.size()), net.memory());
  const bruck_allgather allgather;
  co_await allgather.streams(net, parts, false, storage::streams_of(store), residual);
  auto sum = std::move(parts).joined();
  check_indices(std::span<const Index>(std::as_const(sum).indices()), {0, sum.dimension()});
  if (sum.count() > storage::delta<T, Index>(store, sum.dimension())) sum = to_dense(sum.view(), op, net.memory());
  co_return sum;
}

} // namespace spar
