// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Random bits as a pure function of numbers: splitmix64 (Steele, Lea and Flood, OOPSLA 2014).
#pragma once

#include <cstdint>

namespace spar::detail {

/// The increment of the state of splitmix64, derived from the golden ratio.
inline constexpr std::uint64_t splitmix_step = 0x9E3779B97F4A7C15U;

/// The mixing function of splitmix64.
constexpr std::uint64_t splitmix_finalize(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

/// The number that splitmix64 generates from the state `x`.
constexpr std::uint64_t splitmix(std::uint64_t x) noexcept { return splitmix_finalize(x + splitmix_step); }

} // namespace spar::detail
