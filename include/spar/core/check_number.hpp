// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The check of the numbers that a program passes as options and arguments.
#pragma once

#include <spar/core/error.hpp>
#include <spar/core/non_finite.hpp>

#include <limits>

namespace spar::inline v0_1::detail {

/// The valid values of a number, and their description in an error message.
struct number_range {
  double least;     ///< the least valid value
  double most;      ///< the greatest valid value
  const char* text; ///< such as "a value in [0, 1]"
  /// Whether `x` is valid. NaN never is.
  [[nodiscard]] constexpr bool contains(double x) const noexcept { return is_at_most(least, x) && is_at_most(x, most); }
};

namespace valid {

inline constexpr double infinity = std::numeric_limits<double>::infinity();
inline constexpr double greatest = std::numeric_limits<double>::max();

inline constexpr number_range finite{-greatest, greatest, "a finite number"};
inline constexpr number_range magnitude{0, greatest, "a finite number of at least 0"};
inline constexpr number_range share{0, 1, "a value in [0, 1]"};
inline constexpr number_range duration{0, greatest, "a finite, non-negative number of seconds"};
inline constexpr number_range time_limit{0, infinity, "a non-negative number of seconds, or infinity"};
/// The inverse of a valid bandwidth, the seconds per byte, is finite.
inline constexpr number_range bandwidth{std::numeric_limits<double>::min(), greatest,
                                        "a finite number of bytes per second above 0"};

} // namespace valid

/// Throws `invalid_argument` if `x` is not in `range`: "`what` is `x`; expected ...".
template <class... What>
void check_number(double x, const number_range& range, What... what) {
  if (!range.contains(x)) raise<invalid_argument>({what..., " is ", x, "; expected ", range.text});
}

} // namespace spar::inline v0_1::detail
