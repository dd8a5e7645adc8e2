// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reduces any number P of ranks to a power of two of active ranks, for recursive doubling and halving (Rabenseifner
// 2004).
#pragma once

#include <spar/runtime/messages/message.hpp>

#include <bit>
#include <cstdint>

namespace spar {

/// With r = P - 2^floor(log2 P), each of the first r even ranks sends its contribution to the odd rank above it and
/// gets the result back at the end. All other ranks are active and are numbered in order, so that neighbours stay
/// neighbours.
class fold {
 public:
  constexpr fold(rank_t rank, rank_t ranks) noexcept
      : rank_(rank), active_ranks_(static_cast<rank_t>(std::bit_floor(static_cast<std::uint32_t>(ranks)))),
        extra_(ranks - active_ranks_) {}

  [[nodiscard]] constexpr rank_t active_ranks() const noexcept { return active_ranks_; }
  /// r, the number of ranks that are not active.
  [[nodiscard]] constexpr rank_t extra() const noexcept { return extra_; }
  /// Rounds of recursive doubling among the active ranks.
  [[nodiscard]] constexpr rank_t rounds() const noexcept {
    return static_cast<rank_t>(std::bit_width(static_cast<std::uint32_t>(active_ranks_))) - 1;
  }
  /// Hops from the contribution of a rank to the last result that includes it.
  [[nodiscard]] constexpr rank_t hops() const noexcept { return rounds() + (extra_ > 0 ? 2 : 0); }
  /// Whether this rank is one of a pair, of which only the odd rank is active.
  [[nodiscard]] constexpr bool has_partner() const noexcept { return rank_ < 2 * extra_; }
  [[nodiscard]] constexpr bool active() const noexcept { return !has_partner() || rank_ % 2 == 1; }
  /// The other rank of this rank's pair.
  [[nodiscard]] constexpr rank_t partner() const noexcept { return rank_ ^ 1; }
  /// The number of this rank among the active ranks.
  [[nodiscard]] constexpr rank_t number() const noexcept { return has_partner() ? rank_ / 2 : rank_ - extra_; }
  /// The rank of the active rank with that number.
  [[nodiscard]] constexpr rank_t rank_of(rank_t number) const noexcept {
    return number < extra_ ? 2 * number + 1 : number + extra_;
  }

 private:
  rank_t rank_;
  rank_t active_ranks_;
  rank_t extra_;
};

} // namespace spar
