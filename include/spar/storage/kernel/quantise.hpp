// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rounds floating-point values to multiples of a power of two, and back. Products with a power of two are exact, so
// that nothing but the rounding itself changes a value.
#pragma once

#include <spar/core/non_finite.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace spar::inline v0_1::kernel {

namespace detail {

inline constexpr std::size_t quantised_block = 16; // as many values as compilers turn into vectors without -O3

/// The integer with the bits of |x|, which is ordered like |x|, with NaN beyond infinity.
template <class T>
constexpr auto magnitude_bits(T x) noexcept {
  using bits = std::conditional_t<sizeof(T) == 8, std::int64_t, std::int32_t>;
  return static_cast<bits>(std::bit_cast<bits>(x) & std::numeric_limits<bits>::max());
}

/// Calls `f(e)` for each e from 0 to n - 1, in blocks of a constant number.
template <class F>
[[gnu::always_inline]] inline void in_short_blocks(std::size_t n, F f) {
  std::size_t e = 0;
  for (; e + quantised_block <= n; e += quantised_block)
    for (std::size_t b = 0; b < quantised_block; ++b) f(e + b);
  for (; e < n; ++e) f(e);
}

} // namespace detail

/// Returns the bits of the largest magnitude of x[0, n), which exceed those of infinity if a value is NaN.
template <class T>
[[gnu::noinline]] std::uint64_t largest_bits(const T* x, std::size_t n) {
  using bits = decltype(detail::magnitude_bits(T{}));
  bits top[detail::quantised_block] = {};
  std::size_t e = 0;
  for (; e + detail::quantised_block <= n; e += detail::quantised_block) {
    for (std::size_t b = 0; b < detail::quantised_block; ++b) {
      const bits own = detail::magnitude_bits(x[e + b]);
      top[b] = own > top[b] ? own : top[b];
    }
  }
  bits largest = 0;
  for (; e < n; ++e) {
    const bits own = detail::magnitude_bits(x[e]);
    largest = own > largest ? own : largest;
  }
  for (const bits lane : top) largest = lane > largest ? lane : largest;
  return static_cast<std::uint64_t>(largest);
}

/// Sets codes[e] to x[e] * scale, rounded to nearest, ties away from zero. `scale` is a power of two. The values must
/// be finite, and the results must be less than the largest Code.
template <class Code, class T>
[[gnu::noinline]] void quantise(const T* __restrict x, std::size_t n, T scale, Code* __restrict codes) {
  detail::in_short_blocks(n, [=](std::size_t e) {
    const T exact = x[e] * scale;
    const Code towards_zero = static_cast<Code>(exact);
    const T rest = exact - static_cast<T>(towards_zero); // exact
    codes[e] = static_cast<Code>(towards_zero + (rest >= T(0.5)) - (rest <= T(-0.5)));
  });
}

/// Sets x[e] to codes[e] * step, rounded once. `step` is a power of two.
template <class T, class Code>
[[gnu::noinline]] void dequantise(const Code* __restrict codes, std::size_t n, T step, T* __restrict x) {
  detail::in_short_blocks(n, [=](std::size_t e) { x[e] = static_cast<T>(codes[e]) * step; });
}

} // namespace spar::inline v0_1::kernel
