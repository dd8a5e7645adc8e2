// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Floating-point values in two bytes, rounded to nearest, ties to even: bfloat16 (the upper half of a binary32) and
// IEEE binary16.
#pragma once

#include <spar/core/element.hpp>
#include <spar/core/non_finite.hpp>
#include <spar/core/op.hpp>
#include <spar/storage/kernel/avx2.hpp>
#include <spar/storage/kernel/bits.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

namespace spar::inline v0_1::kernel {

namespace detail {

/// The number of values in an inner loop; a constant, so that compilers vectorise the loop.
inline constexpr std::size_t short_block = 32;

// The codes are computed from bits in a V: a std::int32_t, or four of them in a vector. Selection by a mask vectorises
// on every processor.

/// Returns a mask with all bits set if the condition holds, otherwise 0.
SPAR_HOST_DEVICE constexpr std::int32_t mask_of(bool condition) noexcept {
  return -static_cast<std::int32_t>(condition);
}
template <class V>
SPAR_HOST_DEVICE constexpr V select(V mask, V yes, V no) noexcept {
  return (yes & mask) | (no & ~mask);
}
/// Returns a + b; the sum wraps around.
SPAR_HOST_DEVICE constexpr std::int32_t added(std::int32_t a, std::int32_t b) noexcept {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
}
/// Returns the bits of the sum, or the difference, of the floats with the bits `a` and `b`.
SPAR_HOST_DEVICE inline std::int32_t plus(std::int32_t a, std::int32_t b) noexcept {
  return __builtin_bit_cast(std::int32_t, __builtin_bit_cast(float, a) + __builtin_bit_cast(float, b));
}
SPAR_HOST_DEVICE inline std::int32_t minus(std::int32_t a, std::int32_t b) noexcept {
  return __builtin_bit_cast(std::int32_t, __builtin_bit_cast(float, a) - __builtin_bit_cast(float, b));
}

using four_bits = lanes_of<4>::type;
using four_floats = lanes_of<4>::float_type;

[[gnu::always_inline]] inline four_bits mask_of(four_bits comparison) noexcept { return comparison; }
[[gnu::always_inline]] inline four_bits added(four_bits a, four_bits b) noexcept {
  return std::bit_cast<four_bits>(std::bit_cast<lanes_of<4>::unsigned_type>(a) +
                                  std::bit_cast<lanes_of<4>::unsigned_type>(b));
}
[[gnu::always_inline]] inline four_bits plus(four_bits a, four_bits b) noexcept {
  return std::bit_cast<four_bits>(std::bit_cast<four_floats>(a) + std::bit_cast<four_floats>(b));
}
[[gnu::always_inline]] inline four_bits minus(four_bits a, four_bits b) noexcept {
  return std::bit_cast<four_bits>(std::bit_cast<four_floats>(a) - std::bit_cast<four_floats>(b));
}

} // namespace detail

/// bfloat16: 8 bits of precision, with the range of float. NaN stays NaN. A double is first rounded to float.
struct bfloat16_code {
  /// Floats whose magnitude is at least `limit` become infinite.
  static constexpr float limit = 0x1.ffp127F;
  static constexpr double relative_error = 0x1p-8;
  static constexpr double smallest = 0x1p-133; ///< the smallest positive number

  /// The code of the float with these bits, with the sign extended to 32 bits.
  template <class V>
  SPAR_HOST_DEVICE [[gnu::always_inline]] static V encode_bits(V bits) {
    const V rounded = detail::added(bits, 0x7fff + (bits >> 16 & 1));
    const V is_nan = detail::mask_of((bits & 0x7fffffff) > 0x7f800000);
    return detail::select(is_nan, bits | 0x400000, rounded) >> 16;
  }
  /// The bits of the float whose code is in the upper half of `high`.
  template <class V>
  SPAR_HOST_DEVICE [[gnu::always_inline]] static V decode_bits(V high) {
    return high;
  }
};

/// IEEE binary16: 11 bits of precision for magnitudes up to 65504; magnitudes below 2^-14 are rounded to multiples of
/// 2^-24. Values whose magnitude is at least `limit` become infinite.
struct half_code {
  static constexpr float limit = 65520;
  static constexpr double relative_error = 0x1p-10;
  static constexpr double smallest = 0x1p-24; ///< the smallest positive number

  template <class V>
  SPAR_HOST_DEVICE [[gnu::always_inline]] static V encode_bits(V bits) {
    const V magnitude = bits & 0x7fffffff;
    const V normal = (magnitude - ((112 << 23) - 0xfff) + (magnitude >> 13 & 1)) >> 13;
    // Between 0.5 and 1, floats are 2^-24 apart, so adding 0.5 rounds a magnitude below 2^-14 to a multiple of 2^-24.
    const V subnormal = detail::plus(magnitude, V{} + 0x3f000000) - 0x3f000000;
    const V finite = detail::select(detail::mask_of(magnitude < 0x38800000), subnormal, normal);
    const V special = (detail::mask_of(magnitude > 0x7f800000) & 0x200) | 0x7c00;
    return (bits >> 31 & ~0x7fff) | detail::select(detail::mask_of(magnitude >= 0x477ff000), special, finite);
  }
  template <class V>
  SPAR_HOST_DEVICE [[gnu::always_inline]] static V decode_bits(V high) {
    const V shifted = (high & 0x7fff0000) >> 3;
    // Below 2^-14, the magnitude is a multiple of 2^-24: subtracts 2^-14 from the sum of both, because some processors
    // are slow with operands that are denormal floats.
    const V subnormal = detail::mask_of(shifted < (1 << 23)), special = detail::mask_of(shifted >= (31 << 23));
    const V finite = detail::minus(shifted + (112 << 23) + (subnormal & (1 << 23)), subnormal & (113 << 23));
    return (finite + (special & (112 << 23))) | (high & ~0x7fffffff);
  }
};

/// Values of T whose magnitude is at least `short_limit` become infinite when they are encoded and decoded again: as
/// bfloat16, the halves from 65408 on are rounded to 65536, which is no half.
template <class Code, element T>
inline constexpr float short_limit =
    std::is_same_v<Code, bfloat16_code> && code_of<T> == element_code::float16 ? 65408 : Code::limit;

/// The code of `x`.
template <class Code>
SPAR_HOST_DEVICE std::uint16_t short_of(float x) {
  return static_cast<std::uint16_t>(Code::encode_bits(__builtin_bit_cast(std::int32_t, x)));
}
/// The float with the code `code`.
template <class Code>
SPAR_HOST_DEVICE float float_of(std::uint16_t code) {
  return __builtin_bit_cast(float,
                            Code::decode_bits(static_cast<std::int32_t>(static_cast<std::uint32_t>(code) << 16)));
}

namespace detail {

// nvcc refuses vectors in functions for host and device, also where only the host calls them.

/// Encodes `short_block` floats.
template <class Code>
[[gnu::always_inline]] inline void encode_block(const float* __restrict x, std::uint16_t* __restrict out) {
#if defined(__x86_64__) && !defined(__CUDACC__)
  for (std::size_t b = 0; b < short_block; b += 8) {
    four_bits low, high;
    std::memcpy(&low, x + b, sizeof low);
    std::memcpy(&high, x + b + 4, sizeof high);
    // Packs with saturation, which the sign-extended codes do not need.
    const auto codes = __builtin_ia32_packssdw128(Code::encode_bits(low), Code::encode_bits(high));
    std::memcpy(out + b, &codes, sizeof codes);
  }
#else
  for (std::size_t b = 0; b < short_block; ++b) out[b] = short_of<Code>(x[b]);
#endif
}
/// Decodes `short_block` floats.
template <class Code>
[[gnu::always_inline]] inline void decode_block(const std::uint16_t* __restrict in, float* __restrict out) {
#if defined(__x86_64__) && !defined(__CUDACC__)
  using eight = lanes_of<2>::type;
  for (std::size_t b = 0; b < short_block; b += 8) {
    eight codes;
    std::memcpy(&codes, in + b, sizeof codes);
    const auto decoded = [](eight code_in_upper_half) {
      return Code::decode_bits(std::bit_cast<four_bits>(code_in_upper_half));
    };
    const four_bits low = decoded(__builtin_shufflevector(eight{}, codes, 0, 8, 1, 9, 2, 10, 3, 11));
    const four_bits high = decoded(__builtin_shufflevector(eight{}, codes, 4, 12, 5, 13, 6, 14, 7, 15));
    std::memcpy(out + b, &low, sizeof low);
    std::memcpy(out + b + 4, &high, sizeof high);
  }
#else
  for (std::size_t b = 0; b < short_block; ++b) out[b] = float_of<Code>(in[b]);
#endif
}

template <class Code, class T>
[[gnu::noinline]] void encode_whole(const T* __restrict x, std::size_t n, std::uint16_t* __restrict out) {
  std::size_t e = 0;
  for (; e + short_block <= n; e += short_block) {
    if constexpr (code_of<T> == element_code::float32) {
      encode_block<Code>(x + e, out + e);
    } else {
      float block[short_block];
      for (std::size_t b = 0; b < short_block; ++b) block[b] = static_cast<float>(x[e + b]);
      encode_block<Code>(block, out + e);
    }
  }
  for (; e < n; ++e) out[e] = short_of<Code>(static_cast<float>(x[e]));
}
template <class Code, class T>
[[gnu::noinline]] void decode_whole(const std::uint16_t* __restrict in, std::size_t n, T* __restrict out) {
  std::size_t e = 0;
  for (; e + short_block <= n; e += short_block) {
    if constexpr (code_of<T> == element_code::float32) {
      decode_block<Code>(in + e, out + e);
    } else {
      float block[short_block];
      decode_block<Code>(in + e, block);
      for (std::size_t b = 0; b < short_block; ++b) out[e + b] = static_cast<T>(block[b]);
    }
  }
  for (; e < n; ++e) out[e] = static_cast<T>(float_of<Code>(in[e]));
}
template <class T>
[[gnu::always_inline]] inline auto largest_finite_of(const T* x, std::size_t n) {
  using real = std::conditional_t<sizeof(T) == 8, double, float>;
  std::array<real, short_block> top{};
  std::size_t e = 0;
  const auto look = [&](std::size_t lane, T entry) {
    const auto value = static_cast<real>(entry);
    const real magnitude = value < 0 ? -value : value;
    const real finite = spar::detail::is_at_most(magnitude, std::numeric_limits<real>::max()) ? magnitude : real(0);
    top[lane] = finite > top[lane] ? finite : top[lane];
  };
  for (; e + short_block <= n; e += short_block)
    for (std::size_t b = 0; b < short_block; ++b) look(b, x[e + b]);
  for (; e < n; ++e) look(0, x[e]);
  real largest = 0;
  for (const real lane : top) largest = lane > largest ? lane : largest;
  return largest;
}

/// Adds the n decoded values to `inout`.
template <class Code, class T>
[[gnu::noinline]] void add_whole(const std::uint16_t* __restrict in, std::size_t n, T* __restrict inout) {
  std::size_t e = 0;
  for (; e + short_block <= n; e += short_block) {
    float block[short_block];
    decode_block<Code>(in + e, block);
    for (std::size_t b = 0; b < short_block; ++b) inout[e + b] = sum{}(static_cast<T>(block[b]), inout[e + b]);
  }
  for (; e < n; ++e) inout[e] = sum{}(static_cast<T>(float_of<Code>(in[e])), inout[e]);
}

#if defined(__x86_64__) && !defined(__CUDACC__)

/// Encodes and decodes floats by AVX2 and F16C. The number of values is a multiple of `short_block`.
struct short_avx2 {
  using floats [[gnu::vector_size(32)]] = float;
  using integers [[gnu::vector_size(32)]] = int;
  using words [[gnu::vector_size(32)]] = unsigned;
  using longs [[gnu::vector_size(32)]] = long long;
  using shorts [[gnu::vector_size(16)]] = short;

  template <class Code>
  [[gnu::target("avx2,f16c"), gnu::noinline]] static void encode(const float* __restrict x, std::size_t n,
                                                                 std::uint16_t* __restrict out) {
    for (; n > 0; n -= short_block, x += short_block, out += short_block) {
      floats a, b, c, d;
      std::memcpy(&a, x, 32), std::memcpy(&b, x + 8, 32), std::memcpy(&c, x + 16, 32), std::memcpy(&d, x + 24, 32);
      if (has_nan(a, b, c, d)) [[unlikely]] { // the processor keeps other bits of a NaN
        encode_whole<Code>(x, short_block, out);
      } else if constexpr (std::is_same_v<Code, half_code>) {
        put(__builtin_ia32_vcvtps2ph256(a, 0), out), put(__builtin_ia32_vcvtps2ph256(b, 0), out + 8);
        put(__builtin_ia32_vcvtps2ph256(c, 0), out + 16), put(__builtin_ia32_vcvtps2ph256(d, 0), out + 24);
      } else {
        put(packed(rounded(a), rounded(b)), out), put(packed(rounded(c), rounded(d)), out + 16);
      }
    }
  }
  template <class Code, bool Add>
  [[gnu::target("avx2,f16c"), gnu::noinline]] static void decode(const std::uint16_t* __restrict in, std::size_t n,
                                                                 float* __restrict out) {
    for (; n > 0; n -= short_block, in += short_block, out += short_block) {
      const floats a = decoded<Code>(in), b = decoded<Code>(in + 8);
      const floats c = decoded<Code>(in + 16), d = decoded<Code>(in + 24);
      if (std::is_same_v<Code, half_code> && has_nan(in)) [[unlikely]] { // the processor changes some
        Add ? add_whole<Code>(in, short_block, out) : decode_whole<Code>(in, short_block, out);
      } else {
        put(added<Add>(a, out), out), put(added<Add>(b, out + 8), out + 8);
        put(added<Add>(c, out + 16), out + 16), put(added<Add>(d, out + 24), out + 24);
      }
    }
  }
  template <class T>
  [[gnu::target("avx2,f16c"), gnu::noinline]] static auto largest(const T* x, std::size_t n) {
    return largest_finite_of(x, n);
  }

 private:
  template <class V, class T>
  [[gnu::target("avx2,f16c"), gnu::always_inline]] static void put(V v, T* out) {
    std::memcpy(out, &v, sizeof v);
  }
  [[gnu::target("avx2,f16c"), gnu::always_inline]] static bool has_nan(floats a, floats b, floats c, floats d) {
    constexpr int unordered = 3;
    const auto either = __builtin_bit_cast(longs, __builtin_ia32_cmpps256(a, b, unordered)) |
                        __builtin_bit_cast(longs, __builtin_ia32_cmpps256(c, d, unordered));
    return __builtin_ia32_ptestz256(either, either) == 0;
  }
  /// Whether one of `short_block` halves is NaN. Of the decoded floats, clang++ would compare one after the other.
  [[gnu::target("avx2,f16c"), gnu::always_inline]] static bool has_nan(const std::uint16_t* in) {
    using sixteen [[gnu::vector_size(32)]] = short;
    sixteen a, b;
    std::memcpy(&a, in, 32), std::memcpy(&b, in + 16, 32);
    const auto either = __builtin_bit_cast(longs, ((a & 0x7fff) > 0x7c00) | ((b & 0x7fff) > 0x7c00));
    return __builtin_ia32_ptestz256(either, either) == 0;
  }
  /// The codes of eight floats as bfloat16.
  [[gnu::target("avx2,f16c"), gnu::always_inline]] static integers rounded(floats x) {
    const auto bits = __builtin_bit_cast(words, x);
    return __builtin_bit_cast(integers, (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
  [[gnu::target("avx2,f16c"), gnu::always_inline]] static longs packed(integers a, integers b) {
    const auto pairs = __builtin_bit_cast(longs, __builtin_ia32_packusdw256(a, b));
    return __builtin_shufflevector(pairs, pairs, 0, 2, 1, 3);
  }
  template <class Code>
  [[gnu::target("avx2,f16c"), gnu::always_inline]] static floats decoded(const std::uint16_t* in) {
    if constexpr (std::is_same_v<Code, half_code>) {
      shorts codes;
      std::memcpy(&codes, in, sizeof codes);
      return __builtin_ia32_vcvtph2ps256(codes);
    } else {
      using unsigned_shorts [[gnu::vector_size(16)]] = unsigned short;
      unsigned_shorts codes;
      std::memcpy(&codes, in, sizeof codes);
      return __builtin_bit_cast(floats, __builtin_convertvector(codes, words) << 16);
    }
  }
  template <bool Add>
  [[gnu::target("avx2,f16c"), gnu::always_inline]] static floats added(floats decoded, const float* out) {
    if constexpr (!Add) return decoded;
    floats value;
    std::memcpy(&value, out, sizeof value);
    return decoded + value;
  }
};

#endif

inline bool is_aligned(const std::byte* at) noexcept {
  return reinterpret_cast<std::uintptr_t>(at) % alignof(std::uint16_t) == 0;
}

} // namespace detail

/// Encodes x[0, n), two bytes per value, to `out`. An unaligned `out` is allowed, but slower.
template <class Code, element T>
  requires is_floating<T>
void encode_short(const T* x, std::size_t n, std::byte* out, [[maybe_unused]] bool by_avx2 = detail::has_avx2()) {
  if (detail::is_aligned(out)) {
    auto* const codes = reinterpret_cast<std::uint16_t*>(out);
    std::size_t done = 0;
#if defined(__x86_64__) && !defined(__CUDACC__)
    if constexpr (code_of<T> == element_code::float32) {
      done = by_avx2 ? n - n % detail::short_block : 0;
      detail::short_avx2::encode<Code>(x, done, codes);
    }
#endif
    return detail::encode_whole<Code>(x + done, n - done, codes + done);
  }
  for (std::size_t e = 0; e < n; ++e) {
    const std::uint16_t code = short_of<Code>(static_cast<float>(x[e]));
    std::memcpy(out + 2 * e, &code, 2);
  }
}

/// Decodes n values to `out`, or adds them to `out`.
template <class Code, bool Add = false, element T>
  requires is_floating<T>
void decode_short(const std::byte* in, std::size_t n, T* out, [[maybe_unused]] bool by_avx2 = detail::has_avx2()) {
  if (detail::is_aligned(in)) {
    const auto* const codes = reinterpret_cast<const std::uint16_t*>(in);
    std::size_t done = 0;
#if defined(__x86_64__) && !defined(__CUDACC__)
    if constexpr (code_of<T> == element_code::float32) {
      done = by_avx2 ? n - n % detail::short_block : 0;
      detail::short_avx2::decode<Code, Add>(codes, done, out);
    }
#endif
    if constexpr (Add)
      return detail::add_whole<Code>(codes + done, n - done, out + done);
    else
      return detail::decode_whole<Code>(codes + done, n - done, out + done);
  }
  for (std::size_t e = 0; e < n; ++e) {
    std::uint16_t code = 0;
    std::memcpy(&code, in + 2 * e, 2);
    const auto decoded = static_cast<T>(float_of<Code>(code));
    out[e] = Add ? sum{}(decoded, out[e]) : decoded;
  }
}

/// Returns the largest finite |x[i]|, or 0 if no value is finite.
template <element T>
  requires is_floating<T>
[[gnu::noinline]] auto largest_finite(const T* x, std::size_t n) {
#if defined(__x86_64__) && !defined(__CUDACC__)
  if (detail::has_avx2()) return detail::short_avx2::largest(x, n);
#endif
  return detail::largest_finite_of(x, n);
}

} // namespace spar::inline v0_1::kernel
