// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Folds any number P of ranks, so that the number of active ranks is a power of two, for recursive doubling and halving
// (Rabenseifner 2004).
#pragma once

#include <spar/core/address.hpp>

#include <bit>
#include <cstdint>

namespace spar::inline v0_1 {

/// Which ranks are active after the fold of P ranks. With r = P - 2^floor(log2 P), each of the first r even ranks sends
/// its contribution to the next rank, which is odd, and gets the result from that rank at the end. All other ranks are
/// active. Active ranks are numbered in ascending order, so that neighbours stay neighbours.
class folded_ranks {
 public:
  /// The fold of `ranks` ranks, as seen by `rank`.
  constexpr folded_ranks(rank_t rank, rank_t ranks) noexcept
      : rank_(rank), active_ranks_(static_cast<rank_t>(std::bit_floor(static_cast<std::uint32_t>(ranks)))),
        extra_(ranks - active_ranks_) {}

  /// The number of active ranks: 2^floor(log2 P).
  [[nodiscard]] constexpr rank_t active_ranks() const noexcept { return active_ranks_; }
  /// The number of ranks that are not active: r = P - 2^floor(log2 P).
  [[nodiscard]] constexpr rank_t extra() const noexcept { return extra_; }
  /// Number of rounds of recursive doubling among the active ranks: log2 of the number of active ranks.
  [[nodiscard]] constexpr rank_t rounds() const noexcept {
    return static_cast<rank_t>(std::bit_width(static_cast<std::uint32_t>(active_ranks_))) - 1;
  }
  /// The largest number of hops that a contribution, or a sum that includes it, makes until every rank has the result.
  /// A fold adds two hops.
  [[nodiscard]] constexpr rank_t hops() const noexcept { return rounds() + (extra_ > 0 ? 2 : 0); }
  /// The largest number of additions that a contribution passes: one in each round, and one in a fold.
  [[nodiscard]] constexpr rank_t additions() const noexcept { return rounds() + (extra_ > 0 ? 1 : 0); }
  /// Whether this rank belongs to a pair of ranks that is folded; only the odd rank of a pair is active.
  [[nodiscard]] constexpr bool has_partner() const noexcept { return rank_ < 2 * extra_; }
  /// Whether this rank is active.
  [[nodiscard]] constexpr bool active() const noexcept { return !has_partner() || rank_ % 2 == 1; }
  /// The other rank of this rank's pair, if `has_partner()`.
  [[nodiscard]] constexpr rank_t partner() const noexcept { return rank_ ^ 1; }
  /// The number of this rank among the active ranks, from 0; for a rank that is not active, the number of its partner.
  [[nodiscard]] constexpr rank_t number() const noexcept { return has_partner() ? rank_ / 2 : rank_ - extra_; }
  /// The rank that has `number` among the active ranks.
  [[nodiscard]] constexpr rank_t rank_of(rank_t number) const noexcept {
    return number < extra_ ? 2 * number + 1 : number + extra_;
  }

 private:
  rank_t rank_;
  rank_t active_ranks_;
  rank_t extra_;
};

} // namespace spar::inline v0_1
