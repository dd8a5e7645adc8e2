// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Assertion levels: how thoroughly spar checks its own invariants at run time.
#pragma once

#include <spar/core/error.hpp>

/// The assertion level for which a program is compiled: 0 (no assertions), 1 (checks of local state) or 2 (also checks
/// that cost messages or passes over the data). At every level, spar checks the arguments of public functions, and
/// compares the ranks' call signatures, which every message header contains and which must be equal on all ranks.
#ifndef SPAR_ASSERTION_LEVEL
#ifdef NDEBUG
#define SPAR_ASSERTION_LEVEL 0
#else
#define SPAR_ASSERTION_LEVEL 1
#endif
#endif

namespace spar {

/// How much spar checks: nothing, invariants that are cheap to check, or also those that cost messages or passes over
/// the data.
enum class assertion_level { none = 0, normal = 1, communication = 2 };

/// The level of this program, from the macro SPAR_ASSERTION_LEVEL.
inline constexpr auto active_assertions = static_cast<assertion_level>(SPAR_ASSERTION_LEVEL);

/// Thrown by `ensure` if an invariant does not hold, because of a bug in spar or in a user-defined policy.
struct assertion_failed : error {
  using error::error;
};

/// Throws `assertion_failed` with the message `sentence` if `condition` is false and `Level` is not above
/// SPAR_ASSERTION_LEVEL.
template <assertion_level Level = assertion_level::normal>
constexpr void ensure(bool condition, const char* sentence) {
  if constexpr (active_assertions >= Level) {
    if (!condition) raise<assertion_failed>({sentence});
  }
}

} // namespace spar
