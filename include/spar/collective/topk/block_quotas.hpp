// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How many entries a rank may send to each owner of a balanced block without a round that first adds up the entries of
// each block. The quotas follow from what the owners received in the call before.
#pragma once

#include <spar/collective/topk/owners_state.hpp>
#include <spar/core/element.hpp>
#include <spar/core/memory/buffer.hpp>
#include <spar/core/memory/pool.hpp>
#include <spar/runtime/messages/message.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>

namespace spar {

/// The largest number of entries that an owner gets if all ranks are within their quotas; a balanced block has at most
/// `most` entries. The square root is room for chance: if the entries are at random indices, and a rank has c = most /
/// P entries in a block, then c changes from call to call by sqrt(2 c), its standard deviation. The room of a rank
/// is 2.8 times as large.
inline std::uint64_t most_within_quotas(std::uint64_t most, std::size_t ranks) {
  return most + 4 * static_cast<std::uint64_t>(__builtin_sqrt(static_cast<double>(most) * static_cast<double>(ranks)));
}

/// The quotas of this rank in a call, and what the exchange of the call has counted (see split_sparse). A rank's quota
/// for a block is what the rank sent to the block in the last call, and a P-th of what the owner may get in addition.
/// So the quotas of all ranks for a block add up to at most most_within_quotas.
struct block_quotas {
  buffer<std::uint64_t> quotas;  ///< for each block
  bool known = false;            ///< whether there are quotas; if not, slices may have any length
  bool enforced = false;         ///< whether a rank that exceeds a quota withholds its slices
  std::span<std::uint64_t> sent; ///< the number of this rank's entries in each block
  std::uint64_t received = 0;    ///< the number of all ranks' entries in this rank's block
  bool exceeded = false;         ///< whether this rank has exceeded a quota in this call
  bool withheld = false;         ///< whether a rank has withheld its slices; if so, no rank gets sums

  /// No quotas.
  block_quotas() = default;
  /// Computes the quotas for blocks of at most `most` entries from the `last` counts, in which the exchange will count
  /// the entries of this call. There are no quotas if the last counts are not known, or if a block had too many
  /// entries.
  block_quotas(pool& memory, std::size_t ranks, std::uint64_t most, block_counts& last)
      : quotas(memory, ranks), known(last.received.size() == ranks) {
    const std::uint64_t limit = most_within_quotas(most, ranks);
    last.sent.resize(ranks);
    sent = last.sent;
    for (std::size_t b = 0; b < ranks && known; ++b) {
      known = last.received[b] <= limit;
      quotas.data()[b] = sent[b] + (limit - last.received[b]) / ranks;
    }
    enforced = known && last.quotas_hold != 0;
  }

  /// Counts the `slices` of this rank, and returns whether the rank withholds them.
  template <class Slices>
  bool withhold(const Slices& slices) {
    for (std::size_t b = 0; b < sent.size(); ++b) {
      sent[b] = slices[static_cast<rank_t>(b)].count();
      exceeded = exceeded || (known && sent[b] > std::as_const(quotas).data()[b]);
    }
    return withheld = enforced && exceeded;
  }
  /// Notes that `in` has arrived. Returns whether all slices are void because a rank has withheld its own.
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

  /// What an owner tells all ranks: the number of entries that it has received, and whether it has exceeded a quota as
  /// a sender, in one number that fits an index.
  template <index_type Index>
  [[nodiscard]] std::uint64_t report() const noexcept {
    if (received > std::numeric_limits<Index>::max() / 2) return 1; // too many for quotas
    return 2 * received + (exceeded ? 1 : 0);
  }
};

} // namespace spar
