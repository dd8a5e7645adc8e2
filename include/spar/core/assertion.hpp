// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Assertion levels: how thoroughly the library checks its own work.
#pragma once

#include <spar/core/error.hpp>

/// 0 none, 1 normal (local checks), 2 communication (checks that cost messages or passes over the data). Two kinds of
/// checks are made at every level: arguments of public functions, and what ranks must agree on, which every header
/// carries.
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

/// A broken invariant: a bug in spar or in a user's own policy.
struct assertion_failed : error {
  using error::error;
};

/// Throws `assertion_failed` with `sentence` if `condition` is false and the level is active.
template <assertion_level Level = assertion_level::normal>
constexpr void ensure(bool condition, const char* sentence) {
  if constexpr (active_assertions >= Level) {
    if (!condition) raise<assertion_failed>({sentence});
  }
}

} // namespace spar
