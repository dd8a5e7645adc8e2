// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Comparisons of numbers that may be NaN or infinite, which stay right where -ffast-math lets the compiler assume that
// there are no such numbers.
#pragma once

#include <spar/core/element.hpp>

#include <cstdint>
#include <type_traits>

namespace spar::inline v0_1::detail {

/// Whether the functions below compare the bits of T, because the compiler would replace a comparison of the values by
/// what holds of finite numbers. The functions return the same either way, so files that are compiled with -ffast-math
/// and files that are not make one program.
#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__
template <class T>
inline constexpr bool by_bits = is_floating<T>;
#else
template <class T>
inline constexpr bool by_bits = false;
#endif

/// Returns an integer that is ordered like x, with one number for +0 and -0, and NaN beyond the infinities.
template <class T>
SPAR_HOST_DEVICE constexpr std::int64_t order_of(T x) noexcept {
  using bits =
      std::conditional_t<sizeof(T) == 8, std::int64_t, std::conditional_t<sizeof(T) == 4, std::int32_t, std::int16_t>>;
  const std::int64_t all = __builtin_bit_cast(bits, x);
  const std::int64_t magnitude = all & (INT64_MAX >> (64 - 8 * sizeof(T)));
  return all < 0 ? -magnitude : magnitude;
}
template <class T>
inline constexpr std::int64_t order_of_infinity = code_of<T> == element_code::float64   ? std::int64_t{0x7ff} << 52
                                                  : code_of<T> == element_code::float32 ? 0x7f800000
                                                  : code_of<T> == element_code::float16 ? 0x7c00
                                                                                        : 0x7f80;

/// Whether x is NaN; for a type of a user, whether x differs from itself.
template <class T>
SPAR_HOST_DEVICE constexpr bool is_nan(T x) noexcept {
  if constexpr (by_bits<T>)
    return order_of(x) > order_of_infinity<T> || order_of(x) < -order_of_infinity<T>;
  else
    return x != x;
}
/// Whether x is neither infinite nor NaN.
template <class T>
SPAR_HOST_DEVICE constexpr bool is_finite(T x) noexcept {
  if constexpr (by_bits<T>)
    return order_of(x) < order_of_infinity<T> && order_of(x) > -order_of_infinity<T>;
  else
    return x - x == T{};
}
/// a < b, which does not hold if one of them is NaN.
template <class T>
SPAR_HOST_DEVICE constexpr bool is_less(T a, T b) noexcept {
  if constexpr (by_bits<T>)
    return !is_nan(a) && !is_nan(b) && order_of(a) < order_of(b);
  else
    return a < b;
}
/// a <= b, which does not hold if one of them is NaN.
template <class T>
SPAR_HOST_DEVICE constexpr bool is_at_most(T a, T b) noexcept {
  if constexpr (by_bits<T>)
    return !is_nan(a) && !is_nan(b) && order_of(a) <= order_of(b);
  else
    return a <= b;
}
/// a != b, which holds if one of them is NaN.
template <class T>
SPAR_HOST_DEVICE constexpr bool differs(const T& a, const T& b) noexcept {
  if constexpr (by_bits<T>)
    return is_nan(a) || order_of(a) != order_of(b);
  else
    return a != b;
}

} // namespace spar::inline v0_1::detail
