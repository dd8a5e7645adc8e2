// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Checked narrowing of integers, for counts.
#pragma once

#include <spar/core/error.hpp>

#include <concepts>
#include <string>
#include <utility>

namespace spar {

/// Converts `value` to `To`. Throws `invalid_argument` with the value if it does not fit.
template <std::integral To, std::integral From>
constexpr To checked_cast(From value) {
  if (!std::in_range<To>(value)) {
    raise<invalid_argument>({"the value ", value, " does not fit into ", 8 * sizeof(To), " bits"});
  }
  return static_cast<To>(value);
}

} // namespace spar
