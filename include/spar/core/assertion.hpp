// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Checks of spar's own invariants at run time. They are compiled into every program, whatever its macros are: parts of
// one program that are compiled with different macros must have the same functions.
#pragma once

#include <spar/core/error.hpp>

namespace spar {

/// Thrown by `ensure` if an invariant does not hold, because of a bug in spar or in a user-defined policy.
struct assertion_failed : error {
  using error::error;
};

/// Throws `assertion_failed` with the message `sentence` if `condition` is false. For conditions that cost a few
/// instructions for each message.
constexpr void ensure(bool condition, const char* sentence) {
  if (!condition) raise<assertion_failed>({sentence});
}

} // namespace spar
