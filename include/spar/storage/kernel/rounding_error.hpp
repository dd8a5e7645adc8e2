// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A value of a residual plus the rounding error of an encoding, for processors and devices.
#pragma once

#include <spar/core/compiler.hpp>
#include <spar/core/element.hpp>
#include <spar/core/non_finite.hpp>

#include <concepts>
#include <type_traits>

namespace spar::inline v0_1::kernel::detail {

/// A type wider than T for computing rounding errors: in this type, differences of values of T are exact, or nearly
/// exact. For a type of a user, T itself.
template <class T>
using wider =
    std::conditional_t<!is_floating<T> && !std::integral<T>, T, std::conditional_t<sizeof(T) < 8, double, long double>>;

/// The sum of two doubles, rounded, and what the rounding loses (Knuth, The Art of Computer Programming, volume 2,
/// section 4.2.2, theorem B).
struct double_sum {
  double rounded, lost;

  SPAR_HOST_DEVICE double_sum(double a, double b) noexcept : rounded(a + b) {
    const double part_of_b = rounded - a;
    lost = (a - (rounded - part_of_b)) + (b - part_of_b);
  }
};

/// Returns `residual` + (`exact` - `decoded`), or `residual` if this difference is not finite. Rounds once, doubles to
/// within 2^-52 of the last bit. For doubles, uses no wider type, which devices and some processors lack, so that all
/// get the same bits.
template <element T>
SPAR_HOST_DEVICE T with_error(const T& residual, const T& exact, const T& decoded) {
  if constexpr (std::same_as<T, double>) {
    const double_sum error(exact, -decoded);
    if (!spar::detail::is_finite(error.rounded)) return residual;
    const double_sum all(residual, error.rounded);
    const double rest = all.lost + error.lost; // NaN if the sum is infinite
    return spar::detail::is_finite(rest) ? all.rounded + rest : all.rounded;
  } else {
    using W = wider<T>;
    static_assert(
        requires(const W& x) { x - x == x + x; },
        "the rounding errors of a storage that is not exact need the operators +, - and == of the values");
    const W error = static_cast<W>(exact) - static_cast<W>(decoded);
    return spar::detail::is_finite(error) ? static_cast<T>(static_cast<W>(residual) + error) : residual;
  }
}

} // namespace spar::inline v0_1::kernel::detail
