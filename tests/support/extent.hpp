// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How much of a long test is wanted.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

namespace spar_test {

/// Large tests run whole without sanitizers, and shortened with them. Small ones run whole, with sanitizers alone.
#if defined(SPAR_LARGE_TEST) && (defined(SPAR_SANITIZES_ADDRESSES) || defined(SPAR_SANITIZES_THREADS))
inline constexpr bool is_shortened = true;
#else
inline constexpr bool is_shortened = false;
#endif

/// Whether more cases are wanted, as by scripts/test --full.
inline bool is_full() { return !is_shortened && std::getenv("SPAR_FULL") != nullptr; }

/// How many random orders of events: SPAR_SCHEDULES; 100 unless it is set, or 20 of a shortened test.
inline std::uint64_t schedules() {
  const char* wanted = std::getenv("SPAR_SCHEDULES");
  return wanted != nullptr ? std::stoull(wanted) : is_shortened ? 20 : 100;
}

} // namespace spar_test
