// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A power of two of active ranks out of any number P, for recursive doubling and halving (Rabenseifner 2004).
#pragma once

#include <spar/core/message.hpp>

#include <bit>
#include <cstdint>

namespace spar {

/// With r = P - 2^floor(log2 P), each of the first r even ranks hands its contribution to the odd rank above it and
/// gets the result back; the others are active and numbered in their order, so that neighbours stay neighbours.
struct fold {
  rank_t rank;
  rank_t ranks;

  [[nodiscard]] constexpr rank_t active_ranks() const noexcept {
    return static_cast<rank_t>(std::bit_floor(static_cast<std::uint32_t>(ranks)));
  }
  [[nodiscard]] constexpr rank_t extra() const noexcept { return ranks - active_ranks(); }
  [[nodiscard]] constexpr bool has_partner() const noexcept { return rank < 2 * extra(); }
  [[nodiscard]] constexpr bool active() const noexcept { return !has_partner() || rank % 2 == 1; }
  /// The other one of a pair that is folded into one.
  [[nodiscard]] constexpr rank_t partner() const noexcept { return rank ^ 1; }
  /// This rank's number among the active ones.
  [[nodiscard]] constexpr rank_t number() const noexcept { return has_partner() ? rank / 2 : rank - extra(); }
  /// The rank of the active one with that number.
  [[nodiscard]] constexpr rank_t rank_of(rank_t number) const noexcept {
    return number < extra() ? 2 * number + 1 : number + extra();
  }
};

} // namespace spar
