// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sends entries to the owners of balanced blocks without a round that first adds up the entries of each block: each
// rank has a quota for each block, which follows from what the owners received in the call before.
#pragma once

#include <spar/collective/allreduce/split.hpp>
#include <spar/collective/topk/balanced_ownership.hpp>
#include <spar/core/memory/buffer.hpp>
#include <spar/runtime/channel.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/topology/ownership.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace spar {

/// The entries in each block in the last call, from which the quotas of the next call follow.
struct block_counts {
  std::vector<std::uint64_t> received{}; ///< all ranks' entries in each block, equal on all ranks; empty: not known
  std::uint64_t quotas_hold = 1;         ///< 0 if a rank exceeded one of its quotas, else 1; equal on all ranks
  std::vector<std::uint64_t> sent{};     ///< this rank's entries in each block
};

/// What a call did to keep the blocks balanced.
struct block_report {
  std::uint64_t boundary_rounds = 0; ///< the number of refinements of the owners' boundaries
  bool counted_first = false;        ///< whether the ranks added up the entries of each block before they sent entries
  bool repeated = false; ///< whether a rank exceeded a quota, so that all ranks counted, and sent their entries again
};

/// How many entries this rank may send to each owner in a split phase, and what the split phase has counted.
struct split_quotas {
  std::span<const std::uint64_t> quotas{}; ///< the largest slice for each owner; if empty, slices may have any length
  bool enforced = false;                   ///< whether a rank that exceeds a quota sends only flags, and no slices
  std::span<std::uint64_t> sent{};         ///< result: the number of this rank's entries in the block of each owner
  std::uint64_t received = 0;              ///< result: the number of all ranks' entries in this rank's block
  bool exceeded = false; ///< result: whether this rank has exceeded a quota in this split phase or before
  bool withheld = false; ///< result: whether a rank has sent flags; if so, no rank gets sums

  /// Counts the `slices` of this rank, and returns whether this rank withholds them.
  template <class Slices>
  bool withhold(const Slices& slices) {
    for (std::size_t r = 0; r < sent.size(); ++r) {
      sent[r] = slices[static_cast<rank_t>(r)].count();
      exceeded = exceeded || (!quotas.empty() && sent[r] > quotas[r]);
    }
    return withheld = enforced && exceeded;
  }
  /// Notes that `in` has arrived. Returns whether the slices are void because a rank has withheld its own.
  bool are_void(const message_buffer& in) {
    withheld = withheld || (enforced && in.head().format == wire_format::parts && in.head().count == 0);
    return withheld;
  }
  /// Counts the entries of all ranks' `slices` in this rank's block.
  template <class Slices>
  void count_received(const Slices& slices) {
    received = 0;
    for (const auto& slice : slices) received += slice.count();
  }
};

namespace detail {

/// The largest number of entries that an owner gets if all ranks are within their quotas; a balanced block has at most
/// `most` entries. The square root is room for chance: if the entries are at random indices, and a rank has c = most /
/// P entries in a block, then c changes from call to call by sqrt(2 c), its standard deviation. The room of a rank
/// is 2.8 times as large.
inline std::uint64_t most_within_quotas(std::uint64_t most, std::size_t ranks) {
  return most + 4 * static_cast<std::uint64_t>(__builtin_sqrt(static_cast<double>(most) * static_cast<double>(ranks)));
}

/// Sets this rank's quota for each block: what the rank sent to the block in the last call, and a P-th of what its
/// owner may get in addition. So the quotas of all ranks for a block add up to at most `limit`. Returns false, and sets
/// nothing of use, if a block had more than `limit` entries, or if the numbers are not known.
inline bool set_quotas(const block_counts& last, std::uint64_t limit, std::span<std::uint64_t> quotas) {
  if (last.received.size() != quotas.size()) return false;
  for (std::size_t b = 0; b < quotas.size(); ++b) {
    if (last.received[b] > limit) return false;
    const std::uint64_t sent = last.sent.size() == quotas.size() ? last.sent[b] : 0;
    quotas[b] = sent + (limit - last.received[b]) / quotas.size();
  }
  return true;
}

/// What an owner tells all ranks: the number of entries that it has received, and whether it has exceeded a quota as a
/// sender, in one number that fits an index.
template <index_type Index>
std::uint64_t to_rider(std::uint64_t received, bool exceeded) noexcept {
  if (received > std::numeric_limits<Index>::max() / 2) return 1; // too many for quotas
  return 2 * received + (exceeded ? 1 : 0);
}

} // namespace detail

/// Sends each owner its slice of `mine`, and returns the sums at the indices that this rank owns: `reduce(within)` is
/// the exchange that counts entries, and enforces quotas, as split_sparse does. If possible, the ranks send their
/// entries at once, each within its quotas, which add up to at most most_within_quotas(most, P) entries for an owner. A
/// rank that would exceed a quota sends only flags; all ranks then add up the entries of each block, balance the blocks
/// if one has more than `most` entries, and send their entries again. The ranks count first, and send once, if `anew`
/// is true, if the last call has left no quotas, or if a rank would have exceeded its quotas in the last call.
///
/// Changes the `bounds` like balance_ownership. Sets `rider` to a number that all ranks must pass to keep_counts at the
/// end of the call. The arguments `anew`, `most`, `bounds` and the shared part of `counts` are equal on all ranks.
///
/// A rank sends the messages of `reduce`; in a call that counts first, also those of balance_ownership; in a call in
/// which a rank exceeds a quota, both, and P - 1 flags or slices more.
template <transport Net, element T, index_type Index, class Ownership, class Reduce>
task<sparse_stream<T, Index>> reduce_within_quotas(channel<Net> net, stream_view<T, Index> mine, Ownership target,
                                                   std::span<std::uint64_t> bounds, bool anew, std::uint64_t most,
                                                   block_counts& counts, block_report& did, std::uint64_t& rider,
                                                   const Reduce& reduce) {
  const auto ranks = static_cast<std::size_t>(net.size());
  buffer<std::uint64_t> quotas(net.memory(), ranks);
  const bool known = detail::set_quotas(counts, detail::most_within_quotas(most, ranks), quotas.span());
  counts.sent.resize(ranks);
  split_quotas within{.sent = counts.sent};
  if (known) within.quotas = quotas.span();
  did = {.counted_first = anew || !known || counts.quotas_hold == 0 || !detail::divides(bounds, target.n)};
  within.enforced = !did.counted_first;
  if (did.counted_first)
    did.boundary_rounds = co_await balance_ownership(net, mine.indices(), target, bounds, anew, most);
  sparse_stream<T, Index> reduced = co_await reduce(within);
  if (within.withheld) {
    did.repeated = true;
    within.enforced = false;
    did.boundary_rounds = co_await balance_ownership(net, mine.indices(), target, bounds, false, most);
    reduced = co_await reduce(within);
  }
  rider = detail::to_rider<Index>(within.received, within.exceeded);
  co_return reduced;
}

/// Keeps the `riders` of all ranks (see reduce_within_quotas) for the quotas of the next call.
inline void keep_counts(std::span<const std::uint64_t> riders, block_counts& counts) {
  counts.received.resize(riders.size());
  counts.quotas_hold = 1;
  for (std::size_t r = 0; r < riders.size(); ++r) {
    counts.received[r] = riders[r] / 2;
    if (riders[r] % 2 != 0) counts.quotas_hold = 0;
  }
}

} // namespace spar
