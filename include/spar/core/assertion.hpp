// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Assertion levels: how much of its own work the library checks.
#pragma once

#include <spar/core/error.hpp>

/// 0 none, 1 normal (local checks), 2 communication (for checks that cost messages or passes over the data). Arguments
/// of public functions, and what ranks must agree on, are checked at every level: every header carries it.
#ifndef SPAR_ASSERTION_LEVEL
#ifdef NDEBUG
#define SPAR_ASSERTION_LEVEL 0
#else
#define SPAR_ASSERTION_LEVEL 1
#endif
#endif

namespace spar {

enum class assertion_level { none = 0, normal = 1, communication = 2 };

inline constexpr auto active_assertions = static_cast<assertion_level>(SPAR_ASSERTION_LEVEL);

/// A broken invariant of the library itself; reaching one is a bug in spar or in a user's own policy.
struct assertion_failed : error {
  using error::error;
};

/// Throws `assertion_failed` with `sentence` where `condition` is false and the level is active.
template <assertion_level Level = assertion_level::normal>
constexpr void ensure(bool condition, const char* sentence) {
  if constexpr (active_assertions >= Level) {
    if (!condition) raise<assertion_failed>({sentence});
  }
}

} // namespace spar
