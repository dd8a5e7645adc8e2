// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Conversion of integers to narrower types, with a check of the range.
#pragma once

#include <spar/core/error.hpp>

#include <concepts>
#include <limits>
#include <utility>

namespace spar::inline v0_1 {

/// Converts `value` to the integer type `To`. Throws `invalid_argument` if `value` is out of the range of `To`.
template <std::integral To, std::integral From>
constexpr To checked_cast(From value) {
  if (!std::in_range<To>(value)) {
    raise<invalid_argument>({"the value ", value, " is out of range: it must be in [", std::numeric_limits<To>::min(),
                             ", ", std::numeric_limits<To>::max(), "]"});
  }
  return static_cast<To>(value);
}

} // namespace spar::inline v0_1
