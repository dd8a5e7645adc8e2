// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Floating-point values in two bytes, rounded to nearest, ties to even: bfloat16 (the upper half of a binary32) and
// IEEE binary16.
#pragma once

#include <spar/core/element.hpp>
#include <spar/core/host_device.hpp>
#include <spar/core/non_finite.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace spar::kernel {

namespace detail {

/// The number of values in an inner loop; a constant, so that compilers vectorise the loop.
inline constexpr std::size_t short_block = 32;

/// Returns a mask with all bits set if the condition holds, otherwise 0. `select` uses masks, because selection by a
/// mask vectorises on every processor.
SPAR_HOST_DEVICE constexpr std::int32_t mask_of(bool condition) noexcept {
  return -static_cast<std::int32_t>(condition);
}
SPAR_HOST_DEVICE constexpr std::int32_t select(std::int32_t mask, std::int32_t yes, std::int32_t no) noexcept {
  return (yes & mask) | (no & ~mask);
}

} // namespace detail

/// bfloat16: 8 bits of precision, with the range of float. NaN stays NaN. A double is first rounded to float.
struct bfloat16_code {
  /// Values whose magnitude is at least `limit` become infinite.
  static constexpr float limit = 0x1.ffp127F;
  static constexpr double relative_error = 0x1p-8;
  static constexpr double smallest = 0x1p-133; ///< the smallest positive number

  SPAR_HOST_DEVICE static std::uint16_t encode(float x) {
    const auto bits = __builtin_bit_cast(std::uint32_t, x);
    const auto rounded = static_cast<std::int32_t>(bits + 0x7fffU + (bits >> 16 & 1U));
    const auto quiet = static_cast<std::int32_t>(bits | 0x400000U);
    const std::int32_t is_nan = detail::mask_of(static_cast<std::int32_t>(bits & 0x7fffffffU) > 0x7f800000);
    return static_cast<std::uint16_t>(detail::select(is_nan, quiet, rounded) >> 16);
  }
  SPAR_HOST_DEVICE static float decode(std::uint16_t code) {
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(code) << 16);
  }
};

/// IEEE binary16: 11 bits of precision for magnitudes up to 65504; magnitudes below 2^-14 are rounded to multiples of
/// 2^-24. Values whose magnitude is at least `limit` become infinite.
struct half_code {
  static constexpr float limit = 65520;
  static constexpr double relative_error = 0x1p-10;
  static constexpr double smallest = 0x1p-24; ///< the smallest positive number

  SPAR_HOST_DEVICE static std::uint16_t encode(float x) {
    const auto bits = __builtin_bit_cast(std::int32_t, x);
    const std::int32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    const std::int32_t normal = (magnitude + 0xfff + (magnitude >> 13 & 1) - (112 << 23)) >> 13;
    // Between 0.5 and 1, floats are 2^-24 apart, so adding 0.5 rounds a magnitude below 2^-14 to a multiple of 2^-24.
    const std::int32_t subnormal =
        __builtin_bit_cast(std::int32_t, __builtin_bit_cast(float, magnitude) + 0.5F) - 0x3f000000;
    const std::int32_t finite = detail::select(detail::mask_of(magnitude < 0x38800000), subnormal, normal);
    const std::int32_t special = 0x7c00 | (0x200 & detail::mask_of(magnitude > 0x7f800000));
    return static_cast<std::uint16_t>(sign | detail::select(detail::mask_of(magnitude >= 0x477ff000), special, finite));
  }
  SPAR_HOST_DEVICE static float decode(std::uint16_t code) {
    const std::int32_t magnitude = code & 0x7fff, shifted = magnitude << 13;
    const auto finite = __builtin_bit_cast(std::int32_t, __builtin_bit_cast(float, shifted) * 0x1p112F);
    const std::int32_t bits = detail::select(detail::mask_of(magnitude >= 0x7c00), shifted | 0x7f800000, finite);
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) | (code & 0x8000U) << 16);
  }
};

namespace detail {

template <class Code, class T>
[[gnu::noinline]] void encode_whole(const T* __restrict x, std::size_t n, std::uint16_t* __restrict out) {
  std::size_t e = 0;
  for (; e + short_block <= n; e += short_block)
    for (std::size_t b = 0; b < short_block; ++b) out[e + b] = Code::encode(static_cast<float>(x[e + b]));
  for (; e < n; ++e) out[e] = Code::encode(static_cast<float>(x[e]));
}
template <class Code, class T>
[[gnu::noinline]] void decode_whole(const std::uint16_t* __restrict in, std::size_t n, T* __restrict out) {
  std::size_t e = 0;
  for (; e + short_block <= n; e += short_block)
    for (std::size_t b = 0; b < short_block; ++b) out[e + b] = static_cast<T>(Code::decode(in[e + b]));
  for (; e < n; ++e) out[e] = static_cast<T>(Code::decode(in[e]));
}
inline bool is_aligned(const std::byte* at) noexcept {
  return reinterpret_cast<std::uintptr_t>(at) % alignof(std::uint16_t) == 0;
}

} // namespace detail

/// Encodes x[0, n), two bytes per value, to `out`. An unaligned `out` is allowed, but slower.
template <class Code, element T>
  requires is_floating<T>
void encode_short(const T* x, std::size_t n, std::byte* out) {
  if (detail::is_aligned(out)) return detail::encode_whole<Code>(x, n, reinterpret_cast<std::uint16_t*>(out));
  for (std::size_t e = 0; e < n; ++e) {
    const std::uint16_t code = Code::encode(static_cast<float>(x[e]));
    std::memcpy(out + 2 * e, &code, 2);
  }
}

template <class Code, element T>
  requires is_floating<T>
void decode_short(const std::byte* in, std::size_t n, T* out) {
  if (detail::is_aligned(in)) return detail::decode_whole<Code>(reinterpret_cast<const std::uint16_t*>(in), n, out);
  for (std::size_t e = 0; e < n; ++e) {
    std::uint16_t code = 0;
    std::memcpy(&code, in + 2 * e, 2);
    out[e] = static_cast<T>(Code::decode(code));
  }
}

/// Returns the largest finite |x[i]|, or 0 if no value is finite.
template <element T>
  requires is_floating<T>
[[gnu::noinline]] auto largest_finite(const T* x, std::size_t n) {
  using real = std::conditional_t<sizeof(T) == 8, double, float>;
  std::array<real, detail::short_block> top{};
  std::size_t e = 0;
  const auto look = [&](std::size_t lane, T entry) {
    const auto value = static_cast<real>(entry);
    const real magnitude = value < 0 ? -value : value;
    const real finite = spar::detail::is_at_most(magnitude, std::numeric_limits<real>::max()) ? magnitude : real(0);
    top[lane] = finite > top[lane] ? finite : top[lane];
  };
  for (; e + detail::short_block <= n; e += detail::short_block)
    for (std::size_t b = 0; b < detail::short_block; ++b) look(b, x[e + b]);
  for (; e < n; ++e) look(0, x[e]);
  real largest = 0;
  for (const real lane : top) largest = lane > largest ? lane : largest;
  return largest;
}

} // namespace spar::kernel
