// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How schedules exchange entries on a topology without a plan, such as `flat`: each rank sends its entries directly to
// the owners (Ok-Topk, section 3.1.1), and an allgather gives all ranks the owners' sums. Before the allgather,
// gather_shares moves sums between ranks until all ranks hold about equally many, if this lowers the traffic of the
// busiest rank (section 3.1.2).
#pragma once

#include <spar/collective/allreduce/split.hpp>
#include <spar/collective/topk/balance_and_allgather.hpp>
#include <spar/topology/flat.hpp>
#include <spar/topology/ownership.hpp>

#include <cstdint>
#include <span>
#include <utility>

namespace spar {

/// Sends each owner its slice of `mine`. Returns the sums at the indices that this rank owns, [bounds[rank],
/// bounds[rank + 1]), as a sparse stream. Adds the rounding errors of this rank's encodings to `residual`, unless
/// `residual` is empty. Ranks may withhold their slices because of `quotas` (see split_sparse).
template <transport Net, straight_topology Topology, element T, index_type Index, reduction<T> Op, class Storage,
          class Quotas = const detail::no_quotas>
task<sparse_stream<T, Index>> reduce_to_owners(channel<Net> net, const Topology&, stream_view<T, Index> mine,
                                               std::span<const std::uint64_t> bounds, Op op, Storage store,
                                               residual_view<T> residual, Quotas& quotas = detail::unlimited) {
  return split_sparse(net, mine, bounded_ownership{bounds}, op, store, residual, quotas);
}

/// Returns, on every rank, the entries of all ranks' sparse blocks. The block of rank r has shares[r + 1] - shares[r]
/// entries; all ranks pass the same P + 1 `shares`. Sets `balanced` to whether ranks moved entries before the allgather
/// to balance the blocks. Adds the rounding errors of this rank's encodings to `residual`, unless `residual` is empty.
template <transport Net, straight_topology Topology, element T, index_type Index, class Storage>
task<sparse_stream<T, Index>> gather_shares(channel<Net> net, const Topology&, sparse_stream<T, Index> mine,
                                            std::span<const std::uint64_t>, std::span<const std::uint64_t> shares,
                                            bool& balanced, Storage store, residual_view<T> residual) {
  return balance_and_allgather(net, std::move(mine), shares, balanced, store, residual);
}

/// Returns, on every rank, the blocks of all ranks, joined in rank order. The result is dense if dense values take
/// fewer bytes than entries. Adds the rounding errors of this rank's encodings to `residual`, unless `residual` is
/// empty.
template <transport Net, straight_topology Topology, element T, index_type Index, reduction<T> Op, class Storage>
task<sparse_stream<T, Index>> gather_blocks(channel<Net> net, Topology, stream_view<T, Index> block,
                                            std::span<const std::uint64_t>, Op op, Storage store,
                                            residual_view<T> residual) {
  gathered<T, Index> parts(block, static_cast<std::size_t>(net.size()), net.work());
  const bruck_allgather allgather;
  co_await allgather.streams(net, parts, false, storage::streams_of(store), residual);
  auto sum = std::move(parts).joined();
  const index_range all{0, sum.dimension()};
  co_await net.work().check_indices(std::as_const(sum).indices(), all);
  if (sum.count() > storage::delta<T, Index>(store, sum.dimension())) sum = to_dense(net, sum.view(), op);
  co_return sum;
}

} // namespace spar
