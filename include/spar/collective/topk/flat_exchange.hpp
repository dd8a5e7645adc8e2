// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How entries get to owners and back where no plan says otherwise: straight to each owner, and evened out before they
// come back (Ok-Topk, sections 3.1.1 and 3.1.2).
#pragma once

#include <spar/collective/allreduce/split.hpp>
#include <spar/collective/topk/balance_and_allgather.hpp>
#include <spar/topology/flat.hpp>
#include <spar/topology/ownership.hpp>

#include <cstdint>
#include <span>
#include <utility>

namespace spar {

/// The sums of the indices between this rank's `bounds`, as a sparse stream. `residual`, where it is not empty, gets
/// what this rank's encodings lose, here and in what gathers the sums.
template <transport Net, straight_topology Topology, element T, index_type Index, reduction<T> Op, class Storage>
task<sparse_stream<T, Index>> reduce_to_owners(channel<Net> net, const Topology&, stream_view<T, Index> mine,
                                               std::span<const std::uint64_t> bounds, Op op, Storage store,
                                               std::span<T> residual) {
  return split_phase(net, mine, bounded_ownership{bounds}, op, static_cast<T*>(nullptr), store, residual);
}

/// All ranks' sparse blocks, of numbers of entries that all know: `shares` is where each rank's begins in the joint
/// order, and how many there are. Sets `evened` where shares were evened out before.
template <transport Net, straight_topology Topology, element T, index_type Index, class Storage>
task<sparse_stream<T, Index>> gather_shares(channel<Net> net, const Topology&, sparse_stream<T, Index> mine,
                                            std::span<const std::uint64_t>, std::span<const std::uint64_t> shares,
                                            bool& evened, Storage store, std::span<T> residual) {
  return balance_and_allgather(net, std::move(mine), shares, evened, store, residual);
}

/// All ranks' blocks, which lie in the order of the ranks; dense where that is smaller.
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
