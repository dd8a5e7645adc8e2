// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The split phase, in which every rank sends each owner the slice of its vector that the owner sums (SparCML, section
// 5.3.2; buckets of ranks: Ok-Topk, section 3.1.1), and a sparse reduce-scatter that consists of a split phase.
#pragma once

#include <spar/collective/algorithm.hpp>
#include <spar/collective/wire/all_to_all.hpp>
#include <spar/collective/wire/stream_wire.hpp>
#include <spar/core/memory/fixed_vector.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/storage/merge.hpp>
#include <spar/topology/ownership.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace spar::inline v0_1 {

/// A split phase merges the slices of so many consecutive ranks, and then the sums of these buckets of ranks.
inline constexpr std::size_t split_bucket = 16;

namespace detail {

/// The message of a rank that withholds its slices in a split phase.
inline payload withheld_slice() noexcept { return {wire_format::parts, 0, {}}; }

/// No limits on what ranks send in a split phase (see `block_quotas` for some).
struct no_quotas {
  static constexpr bool withheld = false;
  template <class Slices>
  static constexpr bool withhold(const Slices&) noexcept {
    return false;
  }
  static constexpr bool are_void(const message_buffer&) noexcept { return false; }
  template <class Slices>
  static constexpr void count_received(const Slices&) noexcept {}
};
inline constexpr no_quotas unlimited{};

template <element T, index_type Index>
std::uint64_t entries_of(std::span<const stream_view<T, Index>> parts) {
  std::uint64_t entries = 0;
  for (const auto& part : parts) entries += part.count();
  return entries;
}

/// The number of entries that merges of two streams read in a tree of merges of `parts`.
template <element T, index_type Index>
std::uint64_t merge_work(std::span<const stream_view<T, Index>> parts) {
  const auto levels = static_cast<std::uint64_t>(std::bit_width(parts.size() - 1));
  return entries_of(parts) * std::max<std::uint64_t>(1, levels);
}

} // namespace detail

/// Sends each owner the slice of `mine` in the owner's block, and returns the sums of the slices of all ranks in this
/// rank's block as a sparse stream. Each rank sends and receives P - 1 messages, all in flight at once. Slices are
/// sparse, also those of a dense `mine`. The slices are merged in buckets of 16 ranks, each bucket while the messages
/// of the next bucket arrive; at the end, the sums of the buckets are merged. All reductions are in rank order, so that
/// the sum at an index does not depend on the owner of the index.
///
/// Slices are encoded by the stream codec of `store`. Adds the rounding errors of the encodings of this rank's slices
/// to `residual`, unless `residual` is empty. If `quotas` withhold the slices of this rank, the rank sends flags
/// instead. The sum of a rank that gets a flag is incomplete, and the caller drops it.
template <transport Net, element T, index_type Index, class Ownership, reduction<T> Op, class Storage = storage::coo,
          class Quotas = const detail::no_quotas>
task<sparse_stream<T, Index>> split_sparse(channel<Net> net, stream_view<T, Index> mine, Ownership owner, Op op,
                                           Storage store = {}, residual_view<T> residual = {},
                                           Quotas& quotas = detail::unlimited) {
  using codec = storage::slices_type<Storage>;
  constexpr std::size_t bucket = split_bucket;
  sparse_stream<T, Index> sparse_copy;
  if (mine.is_dense()) {
    sparse_copy = co_await net.work().to_sparse(mine, op);
    mine = sparse_copy.view();
  }
  const codec slices = storage::slices_of(store);
  const auto ranks = static_cast<std::size_t>(net.size());
  const auto rank = static_cast<std::size_t>(net.rank());
  const index_range block = owner[net.rank()];
  const auto slice = co_await net.work().slices(mine, owner, net.size());
  outgoing_list<codec, T, Index> out(net.memory(), ranks - 1); // holds encoded slices; must outlive the sends
  all_to_all<Net, incoming<codec, T, Index>> messages(net);
  const std::uint64_t step = step_of(0, net.rank()); // differs between ranks, so that ranks round independently
  const bool withholds = quotas.withhold(slice);
  for (rank_t i = 1; i < net.size(); ++i) {
    const rank_t peer = messages.destination(i);
    if (withholds)
      messages.send(peer, detail::withheld_slice());
    else
      messages.send(peer, co_await out.add(net, slices, slice[peer], owner[peer], step, residual));
  }
  buffer<stream_view<T, Index>> parts(net.memory(), ranks);
  const std::span<const stream_view<T, Index>> all = std::as_const(parts).span();
  const auto parts_of = [&](std::size_t b) { return all.subspan(b * bucket, std::min(bucket, ranks - b * bucket)); };
  const auto merged = [&](std::span<const stream_view<T, Index>> some) {
    return net.work().merge_many(some, mine.dimension(), block, op);
  };
  fixed_vector<sparse_stream<T, Index>> sums(net.memory(), (ranks + bucket - 1) / bucket);
  for (std::size_t b = 0; b * bucket < ranks; ++b) sums.emplace_back();
  parts.span()[rank] = slice[net.rank()];
  for (rank_t i = 1; i <= net.size(); ++i) { // this rank's own slice comes last
    const auto source = static_cast<std::size_t>(messages.source(i));
    if (source != rank) {
      co_await messages.arrival(i);
      if (quotas.are_void(messages[i])) continue;
      const auto part =
          co_await messages[i].view(net, slices, block, index_check::later); // on a device, the merge checks
      if (part.is_dense() && part.count() > 0) {
        raise<corrupt_message>(
            {"a dense slice of ", part.count(), " values arrived in a split phase; expected a sparse slice"});
      }
      parts.span()[source] = part;
    }
    const bool last_of_bucket = source / bucket == rank / bucket ? source == rank : source % bucket == 0;
    if (!last_of_bucket || quotas.withheld) continue;
    sums[source / bucket] = co_await merged(parts_of(source / bucket));
    net.compute(detail::merge_work(parts_of(source / bucket)));
  }
  if (!quotas.withheld) {
    quotas.count_received(all);
    if (sums.size() > 1) {
      for (std::size_t b = 0; b < sums.size(); ++b) parts.span()[b] = sums[b].view();
      sums[0] = co_await merged(all.first(sums.size()));
      net.compute(detail::merge_work(all.first(sums.size())));
    }
  }
  for (auto& s : messages.end()) co_await s;
  co_return std::move(sums[0]);
}

/// Reduce-scatter of sparse streams in one phase: every rank sends a slice of its stream directly to each owner. Rank r
/// gets block r of the sum as a sparse stream. The blocks are those of `uniform_ownership` or of the argument `owner`.
struct split_reduce_scatter : algorithm_defaults {
  static constexpr std::string_view name = "split_reduce_scatter";

  template <transport Net, element T, index_type Index, reduction<T> Op, class Storage = storage::coo>
    requires storage_policy<Storage, T, Index>
  task<sparse_stream<T, Index>> operator()(channel<Net> net, stream_view<T, Index> mine, Op op, Storage store = {},
                                           residual_view<T> residual = {}) const& {
    return (*this)(net, mine, uniform_ownership{mine.dimension(), net.size()}, op, store, residual);
  }
  template <transport Net, element T, index_type Index, owns_blocks Ownership, reduction<T> Op,
            class Storage = storage::coo>
    requires storage_policy<Storage, T, Index>
  task<sparse_stream<T, Index>> operator()(channel<Net> net, stream_view<T, Index> mine, Ownership owner, Op op,
                                           Storage store = {}, residual_view<T> residual = {}) const& {
    return split_sparse(net, mine, owner, op, store, residual);
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;
};

} // namespace spar::inline v0_1
