// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The random number generator splitmix64 (Steele, Lea and Flood, OOPSLA 2014), as a pure function of the state.
#pragma once

#include <spar/core/compiler.hpp>

#include <cstdint>

namespace spar::inline v0_1::detail {

/// The constant, derived from the golden ratio, by which splitmix64 increments its state for each number.
inline constexpr std::uint64_t splitmix_step = 0x9E3779B97F4A7C15U;

/// The mixing function of splitmix64, which turns a state into a random number.
SPAR_HOST_DEVICE constexpr std::uint64_t splitmix_finalize(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

/// The number that splitmix64 generates from the state `x`.
constexpr std::uint64_t splitmix(std::uint64_t x) noexcept { return splitmix_finalize(x + splitmix_step); }

} // namespace spar::inline v0_1::detail
