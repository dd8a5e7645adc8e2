// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A power of two of active ranks out of any number P, for recursive doubling and halving (Rabenseifner 2004).
#pragma once

#include <spar/runtime/messages/message.hpp>

#include <bit>
#include <cstdint>

namespace spar {

/// With r = P - 2^floor(log2 P), each of the first r even ranks hands its contribution to the odd rank above it and
/// gets the result back; the others are active and numbered in their order, so that neighbours stay neighbours.
class fold {
 public:
  constexpr fold(rank_t rank, rank_t ranks) noexcept
      : rank_(rank), active_ranks_(static_cast<rank_t>(std::bit_floor(static_cast<std::uint32_t>(ranks)))),
        extra_(ranks - active_ranks_) {}

  [[nodiscard]] constexpr rank_t active_ranks() const noexcept { return active_ranks_; }
  [[nodiscard]] constexpr rank_t extra() const noexcept { return extra_; }
  [[nodiscard]] constexpr bool has_partner() const noexcept { return rank_ < 2 * extra_; }
  [[nodiscard]] constexpr bool active() const noexcept { return !has_partner() || rank_ % 2 == 1; }
  /// The other one of a pair that is folded into one.
  [[nodiscard]] constexpr rank_t partner() const noexcept { return rank_ ^ 1; }
  /// This rank's number among the active ones.
  [[nodiscard]] constexpr rank_t number() const noexcept { return has_partner() ? rank_ / 2 : rank_ - extra_; }
  /// The rank of the active one with that number.
  [[nodiscard]] constexpr rank_t rank_of(rank_t number) const noexcept {
    return number < extra_ ? 2 * number + 1 : number + extra_;
  }

 private:
  rank_t rank_;
  rank_t active_ranks_;
  rank_t extra_;
};

} // namespace spar
