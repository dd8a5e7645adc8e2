// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How schedules exchange entries on a topology without a plan, such as `flat`: each rank sends its entries directly to
// the owners (Ok-Topk, section 3.1.1), and an allgather gives all ranks the owners' sums. Before the allgather,
// gather_shares moves sums between ranks until all ranks hold about equally many, if this lowers the traffic of the
// busiest rank (section 3.1.2).
#pragma once

#include <spar/collective/allreduce/split.hpp>
#include <spar/collective/basic/allgather.hpp>
#include <spar/collective/wire/stream_wire.hpp>
#include <spar/core/memory/fixed_vector.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/topology/flat.hpp>
#include <spar/topology/ownership.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace spar::inline v0_1 {

namespace detail {

inline index_range common_range(index_range a, index_range b) {
  const std::uint64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

/// The largest number of entries that any rank sends or receives when ranks first move entries to each other and then
/// run a bruck_allgather of `shares`. The shares have `total` entries in all. `before(r)` returns the numbers of
/// entries that rank r sends and receives in these moves, as a pair.
template <class Shares, class Before>
std::uint64_t largest_traffic(const Shares& shares, rank_t p, std::uint64_t total, Before before) {
  std::uint64_t largest = 0;
  for (rank_t r = 0; r < p; ++r) {
    const auto [sent_before, received_before] = before(r);
    std::uint64_t sent = sent_before;
    for (rank_t distance = 1; distance < p; distance *= 2) {
      const rank_t end = r + std::min(distance, p - distance); // rank r sends the shares [r, end), modulo p
      sent += shares[std::min(end, p) - 1].end - shares[r].begin + (end > p ? shares[end - p - 1].end : 0);
    }
    largest = std::max(largest, std::max(sent, received_before + total - shares[r].size()));
  }
  return largest;
}

} // namespace detail

/// Whether moving entries to balance the shares lowers the largest number of entries that any rank sends or receives,
/// in the moves and the allgather together. With all ranks' entries numbered from 0 in rank order, the share of rank r
/// is [bounds[r], bounds[r + 1]); `bounds` has P + 1 elements. All ranks pass the same `bounds`, so all get the same
/// answer.
inline bool balancing_pays(std::span<const std::uint64_t> bounds) {
  const auto p = static_cast<rank_t>(bounds.size() - 1);
  const bounded_ownership have{bounds};
  const uniform_ownership target{bounds.back(), p};
  const auto no_moves = [](rank_t) { return std::pair<std::uint64_t, std::uint64_t>(0, 0); };
  const auto moves = [&](rank_t r) {
    const std::uint64_t kept = detail::common_range(have[r], target[r]).size();
    return std::pair(have[r].size() - kept, target[r].size() - kept);
  };
  return detail::largest_traffic(target, p, bounds.back(), moves) <
         detail::largest_traffic(have, p, bounds.back(), no_moves);
}

/// Moves entries between ranks until the sizes of their shares differ by at most one entry, and returns this rank's new
/// share. The entries keep their order across all ranks. With all entries numbered in this order, the old share of rank
/// r is [bounds[r], bounds[r + 1]); `bounds` has P + 1 elements. A rank sends one message to each other rank whose new
/// share overlaps the sender's old share. Adds the rounding errors of the encodings of moved entries to `residual`,
/// unless `residual` is empty. Throws `corrupt_message` if a message is dense or has the wrong number of entries. On a
/// device, the caller must check the indices.
template <transport Net, element T, index_type Index, class Storage = storage::coo>
task<sparse_stream<T, Index>> balance_shares(channel<Net> net, stream_view<T, Index> mine,
                                             std::span<const std::uint64_t> bounds, Storage store = {},
                                             residual_view<T> residual = {}) {
  using codec = storage::streams_type<Storage>;
  const codec streams = storage::streams_of(store);
  const index_range all{0, mine.dimension()};
  pool& memory = net.memory();
  const rank_t p = net.size();
  const rank_t rank = net.rank();
  const bounded_ownership have{bounds};
  const uniform_ownership target{bounds.back(), p};
  const auto given = [&](rank_t peer) { return detail::common_range(have[rank], target[peer]); };
  const auto taken = [&](rank_t peer) { return detail::common_range(have[peer], target[rank]); };
  const auto part = [&](index_range positions) {
    return mine.entries_from(positions.begin - have[rank].begin, positions.end - have[rank].begin);
  };
  const auto others = static_cast<std::size_t>(p - 1);
  outgoing_list<codec, T, Index> out(memory, others); // holds the encoded messages, so it must outlive the sends
  fixed_vector<decltype(net.send(0, view_message(mine)))> sending(memory, others);
  fixed_vector<incoming<codec, T, Index>> arrived(memory, others);
  fixed_vector<decltype(net.receive(0, arrived[0]))> receiving(memory, others);
  fixed_vector<index_range> places(memory, others);

  for (rank_t i = 1; i < p; ++i) {
    const rank_t peer = (rank + p - i) % p;
    if (taken(peer).size() == 0) continue;
    receiving.emplace_back(net.receive(peer, arrived.emplace_back(net.work().memory())));
    places.emplace_back(taken(peer));
  }
  for (rank_t i = 1; i < p; ++i) {
    const rank_t peer = (rank + i) % p;
    if (given(peer).size() == 0) continue;
    sending.push_back(net.send(peer, co_await out.add(net, streams, part(given(peer)), all, 0, residual)));
  }
  auto share = sparse_stream<T, Index>::sparse(net.work().memory(), mine.dimension(), target[rank].size());
  const index_range kept = given(rank);
  if (kept.size() > 0) net.work().write(share, kept.begin - target[rank].begin, part(kept));
  for (std::size_t i = 0; i < receiving.size(); ++i) {
    co_await receiving[i];
    const auto theirs = co_await arrived[i].view(net, streams, all, index_check::later);
    if (theirs.count() != places[i].size() || theirs.is_dense()) {
      raise<corrupt_message>({"a message of ", theirs.count(), theirs.is_dense() ? " dense values" : " entries",
                              " arrived while the ranks balanced their shares; expected ", places[i].size(),
                              " entries"});
    }
    net.work().write(share, places[i].begin - target[rank].begin, theirs);
  }
  arrived.clear();
  for (auto& s : sending) co_await s;
  co_return share;
}

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

/// Returns, on every rank, the entries of all ranks' sparse blocks, joined in rank order. The block of rank r has
/// shares[r + 1] - shares[r] entries; all ranks pass the same P + 1 `shares`. Sets `balanced` to whether ranks moved
/// entries before the allgather to balance the blocks. Adds the rounding errors of this rank's encodings to `residual`,
/// unless `residual` is empty. Throws `corrupt_message` if the number of entries or the order of the indices is wrong.
template <transport Net, straight_topology Topology, element T, index_type Index, class Storage>
task<sparse_stream<T, Index>> gather_shares(channel<Net> net, Topology, sparse_stream<T, Index> mine,
                                            std::span<const std::uint64_t>, std::span<const std::uint64_t> shares,
                                            bool& balanced, Storage store, residual_view<T> residual) {
  balanced = balancing_pays(shares);
  if (balanced) mine = co_await balance_shares(net, mine.view(), shares, store, residual);
  const bruck_allgather allgather;
  gathered<T, Index> parts(std::move(mine), static_cast<std::size_t>(net.size()), net.work());
  co_await allgather.streams(net, parts, false, storage::streams_of(store), residual);
  if (parts.count() != shares.back()) {
    raise<corrupt_message>(
        {"all ranks' shares have ", parts.count(), " entries in all; expected ", shares.back(), " entries"});
  }
  sparse_stream<T, Index> all = std::move(parts).joined();
  const index_range whole{0, all.dimension()};
  co_await net.work().check_indices(std::as_const(all).indices(), whole);
  co_return all;
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

} // namespace spar::inline v0_1
