// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The split phase, in which every rank sends each owner the slice of its vector that the owner sums (SparCML, section
// 5.3.2; buckets of ranks: Ok-Topk, section 3.1.1), and a sparse reduce-scatter that consists of a split phase.
#pragma once

#include <spar/collective/algorithm.hpp>
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

namespace spar {

/// A split phase merges the slices of so many consecutive ranks, and then the sums of these buckets of ranks.
inline constexpr std::size_t split_bucket = 16;

/// How many entries this rank may send to each owner in a split phase, and what the split phase has counted.
struct split_quotas {
  std::span<const std::uint64_t> quotas{}; ///< the largest slice for each owner; if empty, slices may have any length
  bool enforced = false;                   ///< whether a rank that exceeds a quota sends only flags, and no slices
  std::span<std::uint64_t> sent{};         ///< result: the number of this rank's entries in the block of each owner
  std::uint64_t received = 0;              ///< result: the number of all ranks' entries in this rank's block
  bool exceeded = false; ///< result: whether this rank has exceeded a quota in this split phase or before
  bool withheld = false; ///< result: whether a rank has sent flags; if so, no rank gets sums

  /// Counts the `slices` of this rank for `ranks` owners, and returns whether this rank withholds them.
  template <class Slices>
  bool count(const Slices& slices, std::size_t ranks) {
    for (std::size_t r = 0; r < ranks; ++r) {
      sent[r] = slices[static_cast<rank_t>(r)].count();
      exceeded = exceeded || (!quotas.empty() && sent[r] > quotas[r]);
    }
    return withheld = enforced && exceeded;
  }
  /// Notes that `in` has arrived. Returns whether the slices are void because a rank has sent flags.
  bool note(const message_buffer& in) {
    withheld = withheld || (enforced && is_flag(in));
    return withheld;
  }

  /// The message of a rank that sends no slices.
  static payload flag() noexcept { return {wire_format::parts, 0, {}}; }
  /// Whether `in` is such a message.
  [[nodiscard]] static bool is_flag(const message_buffer& in) noexcept {
    return in.head().format == wire_format::parts && in.head().count == 0;
  }
};

namespace detail {

/// The number of entries that merges of two streams read in a tree of merges of `parts`.
template <element T, index_type Index>
std::uint64_t merge_work(std::span<const stream_view<T, Index>> parts) {
  std::uint64_t entries = 0;
  for (const auto& part : parts) entries += part.count();
  const auto levels = static_cast<std::uint64_t>(std::bit_width(parts.size() - 1));
  return entries * std::max<std::uint64_t>(1, levels);
}

} // namespace detail

/// Sends each owner the slice of `mine` in the owner's block, and reduces the slices of all ranks in this rank's block.
/// Writes the result to the dense values at `dense`, or returns it as a sparse stream if `dense` is null. Each rank
/// sends and receives P - 1 messages, all in flight at once.
///
/// If `dense` is null, the slices are merged in buckets of 16 ranks, each bucket while the messages of the next bucket
/// arrive; at the end, the sums of the buckets are merged. All reductions are in rank order, so that the sum at an
/// index does not depend on the owner of the index.
///
/// Sparse slices are encoded by the stream codec of `store`. Dense slices are sent as plain values, or encoded by the
/// block codec if `store` has no stream codec. Adds the rounding errors of the encodings of this rank's slices to
/// `residual`, unless `residual` is empty.
///
/// With `within`, which needs sparse slices, the split phase counts entries. If `within` enforces quotas and a rank
/// exceeds one, this rank sends only flags, and all ranks return an empty stream, with `within->withheld` set.
template <transport Net, element T, index_type Index, class Ownership, reduction<T> Op, class Storage = storage::coo>
task<sparse_stream<T, Index>> split_phase(channel<Net> net, stream_view<T, Index> mine, Ownership owner, Op op,
                                          T* dense, Storage store = {}, residual_view<T> residual = {},
                                          split_quotas* within = nullptr) {
  using codec = storage::slices_type<Storage>;
  constexpr std::size_t bucket = split_bucket;
  pool& memory = net.memory();
  sparse_stream<T, Index> sparse_copy;
  if (dense == nullptr && mine.is_dense()) {
    sparse_copy = co_await local::to_sparse(net, mine, op);
    mine = sparse_copy.view();
  }
  const rank_t p = net.size();
  const auto ranks = static_cast<std::size_t>(p);
  const auto rank = static_cast<std::size_t>(net.rank());
  const index_range block = owner[net.rank()];
  local::slices<Net, T, Index, Ownership> slice(mine, owner);
  co_await slice.find(net);
  const codec slices = storage::slices_of(store);
  outgoing_list<codec, T, Index> out(memory, ranks - 1); // holds encoded slices; must outlive the sends that read them
  fixed_vector<decltype(net.send(0, encode(mine)))> sending(memory, ranks - 1);
  fixed_vector<incoming<codec, T, Index>> arrived(memory, ranks - 1);
  fixed_vector<decltype(net.receive(0, arrived[0]))> receiving(memory, ranks - 1);
  buffer<stream_view<T, Index>> parts(memory, ranks);
  const std::span<const stream_view<T, Index>> all_parts = std::as_const(parts).span();
  const auto parts_of = [&](std::size_t b) {
    return all_parts.subspan(b * bucket, std::min(bucket, ranks - b * bucket));
  };
  const auto merged = [&](std::span<const stream_view<T, Index>> some) {
    return local::merge_many(net, some, mine.dimension(), block, op);
  };
  fixed_vector<sparse_stream<T, Index>> sums(memory, (ranks + bucket - 1) / bucket);
  for (std::size_t b = 0; b * bucket < ranks; ++b) sums.emplace_back();

  const auto checked = dense == nullptr ? local::index_check::later : local::index_check::now; // later: by the merge
  const bool withholds = within != nullptr && within->count(slice, ranks);
  const std::uint64_t step = step_of(0, net.rank()); // differs between ranks, so that ranks round independently
  // Every rank sends to its peers in a different order, so that no rank gets the messages of all others at once.
  for (rank_t i = 1; i < p; ++i) {
    receiving.emplace_back(net.receive((net.rank() + p - i) % p, arrived.emplace_back(net.value_memory())));
  }
  for (rank_t i = 1; i < p; ++i) {
    const rank_t peer = (net.rank() + i) % p;
    if (withholds)
      sending.push_back(net.send(peer, split_quotas::flag()));
    else
      sending.push_back(net.send(peer, co_await out.add(net, slices, slice[peer], owner[peer], step, residual)));
  }
  parts.span()[rank] = slice[net.rank()];
  for (std::size_t i = 0; i + 1 < ranks; ++i) {
    co_await receiving[i];
    const std::size_t source = (rank + 2 * ranks - 1 - i) % ranks;
    if (within != nullptr && within->note(arrived[i])) continue; // all slices are void
    const auto part = co_await arrived[i].view(net, slices, block, checked);
    if (dense == nullptr && part.is_dense() && part.count() > 0) {
      raise<corrupt_message>(
          {"a dense slice of ", part.count(), " values arrived in a split phase; expected a sparse slice"});
    }
    parts.span()[source] = part;
    const bool last_of_bucket = source % bucket == 0 && source / bucket != rank / bucket;
    if (last_of_bucket && dense == nullptr) {
      sums[source / bucket] = co_await merged(parts_of(source / bucket));
      net.compute(detail::merge_work(parts_of(source / bucket)));
    }
  }
  sparse_stream<T, Index> sum;
  if (within == nullptr || !within->withheld) {
    std::uint64_t entries = 0;
    for (const auto& part : all_parts) entries += part.count();
    if (within != nullptr) within->received = entries;
    if (dense != nullptr) {
      local::reduce_dense(net, all_parts, block, dense, op);
      net.compute(entries);
    } else if (ranks <= bucket) {
      sum = co_await merged(all_parts);
      net.compute(detail::merge_work(all_parts));
    } else {
      sums[rank / bucket] = co_await merged(parts_of(rank / bucket));
      net.compute(detail::merge_work(parts_of(rank / bucket)));
      for (std::size_t b = 0; b < sums.size(); ++b) parts.span()[b] = sums[b].view();
      sum = co_await merged(all_parts.first(sums.size()));
      net.compute(detail::merge_work(all_parts.first(sums.size())));
    }
  }
  arrived.clear();
  for (auto& s : sending) co_await s;
  co_return sum;
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
  template <transport Net, element T, index_type Index, class Ownership, reduction<T> Op, class Storage = storage::coo>
    requires storage_policy<Storage, T, Index>
  task<sparse_stream<T, Index>> operator()(channel<Net> net, stream_view<T, Index> mine, Ownership owner, Op op,
                                           Storage store = {}, residual_view<T> residual = {}) const& {
    return split_phase(net, mine, owner, op, static_cast<T*>(nullptr), store, residual);
  }

  template <class... Args>
  void operator()(Args&&...) && = delete;
};

} // namespace spar
