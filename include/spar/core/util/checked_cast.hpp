// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The one place where a count is narrowed.
#pragma once

#include <spar/core/error.hpp>

#include <concepts>
#include <string>
#include <utility>

namespace spar {

/// `value` as `To`; throws `invalid_argument` with the value where it does not fit.
template <std::integral To, std::integral From>
constexpr To checked_cast(From value) {
  if (!std::in_range<To>(value)) {
    raise<invalid_argument>({"the value ", value, " does not fit into ", 8 * sizeof(To), " bits"});
  }
  return static_cast<To>(value);
}

} // namespace spar
