// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How much of a long test is wanted.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

namespace spar_test {

#if defined(SPAR_SANITIZES_ADDRESSES) || defined(SPAR_SANITIZES_THREADS)
inline constexpr bool is_sanitized = true;
#else
inline constexpr bool is_sanitized = false;
#endif

/// Whether the long tests are wanted, as by scripts/test --full; not with sanitizers.
inline bool is_full() { return !is_sanitized && std::getenv("SPAR_FULL") != nullptr; }

/// How many random orders of events: SPAR_SCHEDULES; 100 unless it is set, or 20 with sanitizers.
inline std::uint64_t schedules() {
  const char* wanted = std::getenv("SPAR_SCHEDULES");
  return wanted != nullptr ? std::stoull(wanted) : is_sanitized ? 20 : 100;
}

} // namespace spar_test
