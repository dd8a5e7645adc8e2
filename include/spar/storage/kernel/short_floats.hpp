// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Floats in two bytes, rounded to the nearest, ties to even: the upper half of a binary32 (bfloat16) and IEEE binary16.
#pragma once

#include <spar/core/element.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace spar::kernel {

namespace detail {

/// Values that are converted together: of a known number, so that the loops vectorise.
inline constexpr std::size_t short_block = 32;

/// Calls `convert(in, out)` on blocks of the values and their bytes; both sides may lie anywhere.
template <class In, class Out, class Convert>
[[gnu::always_inline]] inline void convert_blocks(const std::byte* in, std::byte* out, std::size_t n, Convert convert) {
  std::array<In, short_block> from{};
  std::array<Out, short_block> to;
  for (std::size_t e = 0; e < n; e += short_block) {
    const std::size_t count = n - e < short_block ? n - e : short_block;
    std::memcpy(from.data(), in + e * sizeof(In), count * sizeof(In));
    for (std::size_t b = 0; b < short_block; ++b) to[b] = convert(from[b]);
    std::memcpy(out + e * sizeof(Out), to.data(), count * sizeof(Out));
  }
}

} // namespace detail

/// bfloat16: 8 bits of precision over the range of float. NaN stays NaN. A double is rounded to float on its way.
struct bfloat16_code {
  /// Finite values from here on would become infinite.
  static constexpr float limit = 0x1.ffp127F;
  static constexpr double relative_error = 0x1p-8;

  static std::uint16_t encode(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t rounded = (bits + 0x7fffU + (bits >> 16 & 1U)) >> 16;
    const std::uint32_t nan = bits >> 16 | 0x40U;
    return static_cast<std::uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? nan : rounded);
  }
  static float decode(std::uint16_t code) { return std::bit_cast<float>(static_cast<std::uint32_t>(code) << 16); }
};

/// binary16: 11 bits of precision up to 65504, multiples of 2^-24 below 2^-14. What rounds to more becomes infinite.
struct half_code {
  static constexpr float limit = 65520;
  static constexpr double relative_error = 0x1p-10;

  static std::uint16_t encode(float x) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    const std::uint32_t sign = bits >> 16 & 0x8000U, magnitude = bits & 0x7fffffffU;
    const std::uint32_t normal = (magnitude + 0xfffU + (magnitude >> 13 & 1U) - (112U << 23)) >> 13;
    // Next to 0.5 the floats are 2^-24 apart: adding it rounds.
    const std::uint32_t small = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3f000000U;
    const std::uint32_t finite = magnitude < 0x38800000U ? small : normal;
    const std::uint32_t special = magnitude > 0x7f800000U ? 0x7e00U : 0x7c00U;
    return static_cast<std::uint16_t>(sign | (magnitude >= 0x477ff000U ? special : finite));
  }
  static float decode(std::uint16_t code) {
    const std::uint32_t sign = (code & 0x8000U) << 16, magnitude = code & 0x7fffU;
    const std::uint32_t shifted = magnitude << 13;
    const std::uint32_t finite = std::bit_cast<std::uint32_t>(std::bit_cast<float>(shifted) * 0x1p112F);
    return std::bit_cast<float>(sign | (magnitude >= 0x7c00U ? shifted | 0x7f800000U : finite));
  }
};

/// Two bytes for each of x[0, n); `out` may be unaligned.
template <class Code, element T>
  requires is_floating<T>
[[gnu::noinline]] void encode_short(const T* x, std::size_t n, std::byte* out) {
  detail::convert_blocks<T, std::uint16_t>(reinterpret_cast<const std::byte*>(x), out, n,
                                           [](T value) { return Code::encode(static_cast<float>(value)); });
}

template <class Code, element T>
  requires is_floating<T>
[[gnu::noinline]] void decode_short(const std::byte* in, std::size_t n, T* out) {
  detail::convert_blocks<std::uint16_t, T>(in, reinterpret_cast<std::byte*>(out), n,
                                           [](std::uint16_t code) { return static_cast<T>(Code::decode(code)); });
}

/// The largest finite |x[i]|; 0 where there is none.
template <element T>
  requires is_floating<T>
[[gnu::noinline]] auto largest_finite(const T* x, std::size_t n) {
  using real = std::conditional_t<sizeof(T) == 8, double, float>;
  std::array<real, detail::short_block> top{};
  std::size_t e = 0;
  const auto look = [&](std::size_t lane, T entry) {
    const auto value = static_cast<real>(entry);
    const real magnitude = value < 0 ? -value : value;
    const bool larger = (magnitude > top[lane]) & (magnitude <= std::numeric_limits<real>::max());
    top[lane] = larger ? magnitude : top[lane];
  };
  for (; e + detail::short_block <= n; e += detail::short_block)
    for (std::size_t b = 0; b < detail::short_block; ++b) look(b, x[e + b]);
  for (; e < n; ++e) look(0, x[e]);
  real largest = 0;
  for (const real lane : top) largest = lane > largest ? lane : largest;
  return largest;
}

} // namespace spar::kernel
