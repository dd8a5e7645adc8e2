// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Blocks of 32 values that share a scale, in 8 or 4 bits a value (OCP Microscaling Formats (MX) Specification 1.0,
// sections 5 and 6.3).
#pragma once

#include <spar/core/element.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/storage/kernel/avx2.hpp>
#include <spar/storage/kernel/bits.hpp>
#include <spar/storage/kernel/short_floats.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#ifdef __CUDACC__ // nvcc warns of the pragma `GCC unroll`
#pragma nv_diagnostic push
#pragma nv_diag_suppress 1675
#endif

namespace spar::inline v0_1::kernel {

/// A floating-point number with a sign, `Bits` - 1 - `Mantissa` bits of exponent and `Mantissa` bits of mantissa.
/// `greatest` is the code of the greatest number; larger codes are infinities or NaN.
template <int Bits, int Mantissa, int Bias, int Greatest>
struct mx_element {
  static constexpr int bits = Bits, mantissa = Mantissa, bias = Bias, greatest = Greatest;
  /// The exponent of the greatest number, in units of 1 and not of the bias.
  static constexpr int greatest_exponent = (Greatest >> Mantissa) - Bias;
  /// The greatest number, divided by the smallest larger power of two.
  static constexpr double fill = (1 + static_cast<double>(Greatest & ((1 << Mantissa) - 1)) / (1 << Mantissa)) / 2;
};

struct e4m3 : mx_element<8, 3, 7, 0x7e> {
  static constexpr std::string_view name = "mx_e4m3";
};
struct e5m2 : mx_element<8, 2, 15, 0x7b> {
  static constexpr std::string_view name = "mx_e5m2";
};
struct e2m1 : mx_element<4, 1, 1, 0x7> {
  static constexpr std::string_view name = "mx_e2m1";
};

/// The number of values that share a scale.
inline constexpr std::size_t mx_block = 32;

/// The size of the encoding of n values, in bytes: a scale and the codes for each block. The last block may be shorter.
template <class Element>
constexpr std::size_t mx_bytes(std::size_t n) noexcept {
  const auto codes = [](std::size_t count) { return (count * Element::bits + 7) / 8; };
  return n / mx_block * (1 + codes(mx_block)) + (n % mx_block == 0 ? 0 : 1 + codes(n % mx_block));
}

namespace detail {

inline constexpr int float_bias = 127, float_mantissa = 23, infinite_float = 0x7f800000;
/// The code of the scale of a block with a NaN or an infinity, which makes all values of the block NaN.
inline constexpr std::uint8_t nan_scale = 0xff;

/// The bits of the float that a magnitude code means, which `in` has at the place of the float's exponent and mantissa.
template <class Element, class V>
[[gnu::always_inline]] inline V mx_float(V in) {
  constexpr int one = 1 << float_mantissa, shift = float_bias - Element::bias;
  const V subnormal = mask_of(in < one);
  const V number = minus(in + shift * one + (subnormal & one), subnormal & ((shift + 1) * one));
  constexpr int greatest = Element::greatest << (float_mantissa - Element::mantissa);
  return Element::bits == 4 ? number : number | (mask_of(in > greatest) & infinite_float); // infinity or NaN
}

using mx_lanes = lanes_of<4>::type;
inline constexpr std::size_t mx_vectors = mx_block / 4;

[[gnu::always_inline]] inline mx_lanes load_lanes(const float* x) {
  mx_lanes lanes;
  std::memcpy(&lanes, x, sizeof lanes);
  return lanes;
}
[[gnu::always_inline]] inline mx_lanes times(mx_lanes x, float by) {
  using floats = lanes_of<4>::float_type;
  return std::bit_cast<mx_lanes>(std::bit_cast<floats>(x) * by);
}

using mx_shorts = lanes_of<2>::type;

/// Packs the lanes of two vectors, with saturation.
[[gnu::always_inline]] inline mx_shorts pack_lanes(mx_lanes low, mx_lanes high) {
#if defined(__x86_64__)
  return __builtin_ia32_packssdw128(low, high);
#else
  mx_shorts packed;
  for (int l = 0; l < 8; ++l)
    packed[l] = static_cast<std::int16_t>(std::min(std::max((l < 4 ? low : high)[l % 4], -0x8000), 0x7fff));
  return packed;
#endif
}
/// Packs lanes in [0, 255] to bytes.
[[gnu::always_inline]] inline void pack_bytes(mx_shorts low, mx_shorts high, std::uint8_t* out) {
#if defined(__x86_64__)
  const auto bytes = __builtin_ia32_packuswb128(low, high);
  std::memcpy(out, &bytes, sizeof bytes);
#else
  for (int l = 0; l < 16; ++l) out[l] = static_cast<std::uint8_t>((l < 8 ? low : high)[l % 8]);
#endif
}

/// The codes of 8 scaled floats, rounded to nearest, ties to even, and saturated.
template <class Element>
[[gnu::always_inline]] inline mx_shorts mx_codes(mx_lanes low, mx_lanes high) {
  constexpr int dropped = float_mantissa - Element::mantissa;
  // The float whose unit in the last place is the smallest positive element: adding it rounds to subnormal elements.
  constexpr int rounding = (float_bias + float_mantissa + 1 - Element::bias - Element::mantissa) << float_mantissa;
  constexpr int offset = ((float_bias - Element::bias) << float_mantissa) - (1 << (dropped - 1)) + 1;
  const auto normal = [](mx_lanes x) {
    const mx_lanes magnitude = x & 0x7fffffff;
    return (magnitude - offset + (magnitude >> dropped & 1)) >> dropped;
  };
  const auto subnormal = [](mx_lanes x) { return plus(x & 0x7fffffff, mx_lanes{} + rounding) - rounding; };
  const mx_shorts codes = pack_lanes(normal(low), normal(high));
  const mx_shorts finite = codes < (1 << Element::mantissa) ? pack_lanes(subnormal(low), subnormal(high)) : codes;
  const mx_shorts greatest = mx_shorts{} + static_cast<std::int16_t>(Element::greatest);
  return (finite < greatest ? finite : greatest) | (pack_lanes(low, high) >> 15 & (1 << (Element::bits - 1)));
}

/// Unpacks 16 bytes to the upper bytes of lanes.
[[gnu::always_inline]] inline void unpack_bytes(const std::uint8_t* in, mx_lanes (&lanes)[4]) {
#if defined(__x86_64__)
  using bytes = lanes_of<1>::type;
  using shorts = mx_shorts;
  bytes codes;
  std::memcpy(&codes, in, sizeof codes);
  const auto low = std::bit_cast<shorts>(
      __builtin_shufflevector(bytes{}, codes, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23));
  const auto high = std::bit_cast<shorts>(
      __builtin_shufflevector(bytes{}, codes, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31));
  lanes[0] = std::bit_cast<mx_lanes>(__builtin_shufflevector(shorts{}, low, 0, 8, 1, 9, 2, 10, 3, 11));
  lanes[1] = std::bit_cast<mx_lanes>(__builtin_shufflevector(shorts{}, low, 4, 12, 5, 13, 6, 14, 7, 15));
  lanes[2] = std::bit_cast<mx_lanes>(__builtin_shufflevector(shorts{}, high, 0, 8, 1, 9, 2, 10, 3, 11));
  lanes[3] = std::bit_cast<mx_lanes>(__builtin_shufflevector(shorts{}, high, 4, 12, 5, 13, 6, 14, 7, 15));
#else
  for (std::size_t b = 0; b < 16; ++b)
    lanes[b / 4][b % 4] = static_cast<std::int32_t>(static_cast<std::uint32_t>(in[b]) << 24);
#endif
}

/// The bits of the largest magnitude of `mx_block` floats; those of a NaN or an infinity are larger than all others.
[[gnu::always_inline]] inline std::int32_t largest_of_block(const float* x) {
  mx_lanes most{};
#pragma GCC unroll 8
  for (std::size_t v = 0; v < mx_vectors; ++v) {
    const mx_lanes magnitude = load_lanes(x + 4 * v) & 0x7fffffff;
    most = magnitude > most ? magnitude : most;
  }
  return std::max(std::max(most[0], most[1]), std::max(most[2], most[3]));
}

/// From this scale on, floats are as good as doubles: with smaller scales, small elements may be subnormal floats.
inline constexpr std::uint8_t exact_scale = 32;

/// Encodes `mx_block` floats, which are values multiplied by 2^shift, to a scale and the codes, of which a byte
/// contains two of four bits, the first in its lower half. `largest`: see `largest_of_block`.
template <class Element>
[[gnu::always_inline]] inline void encode_mx_block(const float* x, std::int32_t largest, std::uint8_t* out,
                                                   int shift = 0) {
  // The scale 2^(code - 127) is the largest power of two that is not above the largest magnitude, divided by the one
  // of the elements.
  const int scale = std::max((largest >> float_mantissa) - Element::greatest_exponent - shift, 0);
  out[0] = largest >= infinite_float ? nan_scale : static_cast<std::uint8_t>(scale);
  const auto inverse = std::bit_cast<float>((2 * float_bias - scale - shift) << float_mantissa);
  ++out;
  std::uint8_t codes[mx_block];
  std::uint8_t* const to = Element::bits == 8 ? out : codes;
  const auto eight = [&](const float* at) {
    return mx_codes<Element>(times(load_lanes(at), inverse), times(load_lanes(at + 4), inverse));
  };
#pragma GCC unroll 2
  for (std::size_t b = 0; b < mx_block; b += 16) pack_bytes(eight(x + b), eight(x + b + 8), to + b);
  if constexpr (Element::bits == 4)
    for (std::size_t b = 0; b < mx_block / 2; ++b)
      out[b] = static_cast<std::uint8_t>(codes[2 * b] | codes[2 * b + 1] << 4);
}

/// The float with which the decoded elements of a block are multiplied.
inline float mx_factor(int scale) {
  return std::bit_cast<float>(scale == 0           ? 1 << (float_mantissa - 1)
                              : scale == nan_scale ? infinite_float | 1 << (float_mantissa - 1)
                                                   : scale << float_mantissa);
}

template <class Element>
[[gnu::always_inline]] inline void decode_mx_block(const std::uint8_t* in, float* out) {
  const float factor = mx_factor(in[0]);
  ++in;
  std::uint8_t codes[mx_block];
  if constexpr (Element::bits == 4)
    for (std::size_t b = 0; b < mx_block / 2; ++b) {
      codes[2 * b] = static_cast<std::uint8_t>(in[b] << 4);
      codes[2 * b + 1] = static_cast<std::uint8_t>(in[b] & 0xf0);
    }
  const std::uint8_t* const from = Element::bits == 8 ? in : codes;
  for (std::size_t b = 0; b < mx_block; b += 16) {
    mx_lanes lanes[4];
    unpack_bytes(from + b, lanes);
    for (std::size_t v = 0; v < 4; ++v) {
      const mx_lanes magnitude = (lanes[v] & 0x7fffffff) >> (32 - Element::bits - float_mantissa + Element::mantissa);
      const mx_lanes decoded = times(mx_float<Element>(magnitude) | (lanes[v] & ~0x7fffffff), factor);
      std::memcpy(out + b + 4 * v, &decoded, sizeof decoded);
    }
  }
}

#if defined(__x86_64__) && !defined(__CUDACC__)

/// Encodes and decodes whole blocks of floats by AVX2, with the formulas of `encode_mx_block` and `decode_mx_block`.
struct mx_avx2 {
  using floats [[gnu::vector_size(32)]] = float;
  using integers [[gnu::vector_size(32)]] = int;
  using shorts [[gnu::vector_size(32)]] = short;
  using bytes [[gnu::vector_size(32)]] = char;
  using longs [[gnu::vector_size(32)]] = long long;
  using words [[gnu::vector_size(32)]] = unsigned;

  template <class Element>
  [[gnu::target("avx2"), gnu::noinline]] static void encode(const float* __restrict x, std::size_t blocks,
                                                            std::uint8_t* __restrict out) {
    // First computes the scales of some blocks: the codes of a block would wait for them.
    constexpr std::size_t most = 8, bytes_of_block = mx_bytes<Element>(mx_block);
    float inverses[most];
    for (; blocks > 0; blocks -= std::min(most, blocks)) {
      const std::size_t some = std::min(most, blocks);
      for (std::size_t b = 0; b < some; ++b) {
        const int largest = largest_of(x + b * mx_block);
        const int scale = std::max((largest >> float_mantissa) - Element::greatest_exponent, 0);
        inverses[b] = __builtin_bit_cast(float, (2 * float_bias - scale) << float_mantissa);
        out[b * bytes_of_block] = largest >= infinite_float ? nan_scale : static_cast<std::uint8_t>(scale);
      }
      for (std::size_t b = 0; b < some; ++b, x += mx_block, out += bytes_of_block)
        encode_block<Element>(x, inverses[b], out + 1);
    }
  }
  template <class Element>
  [[gnu::target("avx2"), gnu::noinline]] static void decode(const std::uint8_t* __restrict in, std::size_t blocks,
                                                            float* __restrict out) {
    for (; blocks > 0; --blocks, in += mx_bytes<Element>(mx_block), out += mx_block) {
      const float factor = mx_factor(in[0]);
      constexpr char no = -128;
      if constexpr (Element::bits == 8) {
        integers lanes;
        std::memcpy(&lanes, in + 1, sizeof lanes);
        lanes = __builtin_shufflevector(lanes, lanes, 0, 2, 4, 6, 1, 3, 5, 7);
        const bytes order{no, no, no, 0, no, no, no, 1, no, no, no, 2, no, no, no, 3,
                          no, no, no, 0, no, no, no, 1, no, no, no, 2, no, no, no, 3};
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) decode_eight<Element>(shuffled(lanes, order, i), factor, out + 8 * i);
      } else {
        using two_longs [[gnu::vector_size(16)]] = long long;
        two_longs both;
        std::memcpy(&both, in + 1, sizeof both);
        const auto lanes = __builtin_bit_cast(integers, __builtin_shufflevector(both, both, 0, 1, 0, 1));
        const bytes order{no, no, no, 0, no, no, no, 0, no, no, no, 1, no, no, no, 1,
                          no, no, no, 2, no, no, no, 2, no, no, no, 3, no, no, no, 3};
        const words lower_half{4, 0, 4, 0, 4, 0, 4, 0};
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
          const auto codes = __builtin_bit_cast(words, shuffled(lanes, order, i)) << lower_half & 0xf0000000;
          decode_eight<Element>(__builtin_bit_cast(integers, codes), factor, out + 8 * i);
        }
      }
    }
  }

 private:
  [[gnu::target("avx2"), gnu::always_inline]] static floats load(const float* x) {
    floats lanes;
    std::memcpy(&lanes, x, sizeof lanes);
    return lanes;
  }
  [[gnu::target("avx2"), gnu::always_inline]] static integers magnitude(floats x) {
    return __builtin_bit_cast(integers, x) & 0x7fffffff;
  }
  [[gnu::target("avx2"), gnu::always_inline]] static integers larger(integers a, integers b) { return a > b ? a : b; }
  /// The bits of the largest magnitude of a block.
  [[gnu::target("avx2"), gnu::always_inline]] static int largest_of(const float* x) {
    integers most = larger(larger(magnitude(load(x)), magnitude(load(x + 8))),
                           larger(magnitude(load(x + 16)), magnitude(load(x + 24))));
    most = larger(most, __builtin_shufflevector(most, most, 4, 5, 6, 7, 0, 1, 2, 3));
    most = larger(most, __builtin_shufflevector(most, most, 2, 3, 0, 1, 6, 7, 4, 5));
    return larger(most, __builtin_shufflevector(most, most, 1, 0, 3, 2, 5, 4, 7, 6))[0];
  }
  /// As `encode_mx_block`, without the scale.
  template <class Element>
  [[gnu::target("avx2"), gnu::always_inline]] static void encode_block(const float* x, float inverse,
                                                                       std::uint8_t* out) {
    const floats a = load(x) * inverse, b = load(x + 8) * inverse;
    const floats c = load(x + 16) * inverse, d = load(x + 24) * inverse;
    const auto magnitudes =
        __builtin_bit_cast(integers, __builtin_ia32_packuswb256(codes<Element>(a, b), codes<Element>(c, d)));
    const auto signs = __builtin_bit_cast(integers, __builtin_ia32_packsswb256(packed(a, b), packed(c, d)));
    const integers all = magnitudes | (signs >> (8 - Element::bits) & 0x01010101 << (Element::bits - 1));
    const integers ordered = __builtin_shufflevector(all, all, 0, 4, 1, 5, 2, 6, 3, 7);
    if constexpr (Element::bits == 8) {
      std::memcpy(out, &ordered, sizeof ordered);
    } else {
      const auto pairs = __builtin_ia32_pmaddubsw256(__builtin_bit_cast(bytes, ordered),
                                                     __builtin_bit_cast(bytes, shorts{} + static_cast<short>(0x1001)));
      const auto halves = __builtin_bit_cast(longs, __builtin_ia32_packuswb256(pairs, pairs));
      const auto first = __builtin_shufflevector(halves, halves, 0, 2);
      std::memcpy(out, &first, sizeof first);
    }
  }
  [[gnu::target("avx2"), gnu::always_inline]] static shorts packed(floats a, floats b) {
    return __builtin_ia32_packssdw256(__builtin_bit_cast(integers, a), __builtin_bit_cast(integers, b));
  }
  /// As `mx_codes`, without signs.
  template <class Element>
  [[gnu::target("avx2"), gnu::always_inline]] static shorts codes(floats a, floats b) {
    const shorts normal = __builtin_ia32_packssdw256(normal_code<Element>(a), normal_code<Element>(b));
    const shorts subnormal = __builtin_ia32_packssdw256(subnormal_code<Element>(a), subnormal_code<Element>(b));
    const shorts finite = normal < (1 << Element::mantissa) ? subnormal : normal;
    // The compiler makes an instruction for the minimum of two variables only.
    const shorts greatest = shorts{} + opaque(static_cast<short>(Element::greatest));
    return finite < greatest ? finite : greatest;
  }
  template <class Element>
  [[gnu::target("avx2"), gnu::always_inline]] static integers normal_code(floats x) {
    constexpr int dropped = float_mantissa - Element::mantissa;
    constexpr int offset = ((float_bias - Element::bias) << float_mantissa) - (1 << (dropped - 1)) + 1;
    return (magnitude(x) - offset + (magnitude(x) >> dropped & 1)) >> dropped;
  }
  template <class Element>
  [[gnu::target("avx2"), gnu::always_inline]] static integers subnormal_code(floats x) {
    constexpr int rounding = (float_bias + float_mantissa + 1 - Element::bias - Element::mantissa) << float_mantissa;
    const auto unit = __builtin_bit_cast(floats, integers{} + rounding);
    return __builtin_bit_cast(integers, __builtin_bit_cast(floats, magnitude(x)) + unit) - rounding;
  }
  /// Moves the bytes 4 * i + `order` of each half to the places of `order`, and makes the others 0.
  [[gnu::target("avx2"), gnu::always_inline]] static integers shuffled(integers from, bytes order, int i) {
    return __builtin_bit_cast(
        integers, __builtin_ia32_pshufb256(__builtin_bit_cast(bytes, from), order + static_cast<char>(4 * i)));
  }
  /// Decodes the codes in the upper bits of the lanes.
  template <class Element>
  [[gnu::target("avx2"), gnu::always_inline]] static void decode_eight(integers lanes, float factor, float* out) {
    constexpr int one = 1 << float_mantissa, shift = float_bias - Element::bias;
    constexpr int greatest = Element::greatest << (float_mantissa - Element::mantissa);
    const integers sized = (lanes & 0x7fffffff) >> (32 - Element::bits - float_mantissa + Element::mantissa);
    const integers subnormal = sized < one;
    auto number = __builtin_bit_cast(integers, __builtin_bit_cast(floats, sized + shift * one + (subnormal & one)) -
                                                   __builtin_bit_cast(floats, subnormal & ((shift + 1) * one)));
    if constexpr (Element::bits == 8) number |= (sized > greatest) & infinite_float;
    const floats decoded = __builtin_bit_cast(floats, number | (lanes & ~0x7fffffff)) * factor;
    std::memcpy(out, &decoded, sizeof decoded);
  }
};

#endif

/// Rounds `mx_block` values to floats that round to the same elements: of a double, the last bit that a float keeps is
/// set if a lower bit is.
template <class T>
[[gnu::always_inline]] inline void to_floats(const T* x, float* out) {
  T kept[mx_block];
  if constexpr (code_of<T> == element_code::float64) {
    constexpr std::uint64_t lost = (std::uint64_t{1} << 29) - 1;
    for (std::size_t b = 0; b < mx_block; b += 2) {
      lanes_of<8>::unsigned_type bits;
      std::memcpy(&bits, x + b, sizeof bits);
      bits = (bits | ((bits & lost) + lost)) & ~lost;
      std::memcpy(kept + b, &bits, sizeof bits);
    }
    x = kept;
  }
  for (std::size_t b = 0; b < mx_block; ++b) out[b] = static_cast<float>(x[b]);
}

/// `encode_mx_block` for values of any type.
template <class Element, class T>
[[gnu::always_inline]] inline void encode_mx_values(const T* x, std::uint8_t* out) {
  float block[mx_block];
  to_floats(x, block);
  encode_mx_block<Element>(block, largest_of_block(block), out);
  if constexpr (code_of<T> == element_code::float64) {
    if (out[0] >= exact_scale) return;
    constexpr int shift = 100;
    double larger[mx_block];
    for (std::size_t b = 0; b < mx_block; ++b) larger[b] = x[b] * 0x1p100;
    to_floats(larger, block);
    encode_mx_block<Element>(block, largest_of_block(block), out, shift);
  }
}

} // namespace detail

/// Encodes x[0, n) to `mx_bytes` bytes.
template <class Element, element T>
  requires is_floating<T>
[[gnu::noinline]] void encode_mx(const T* __restrict x, std::size_t n, std::uint8_t* __restrict out,
                                 [[maybe_unused]] bool by_avx2 = detail::has_avx2()) {
  std::size_t e = 0;
#if defined(__x86_64__) && !defined(__CUDACC__)
  if constexpr (code_of<T> == element_code::float32) {
    e = by_avx2 ? n - n % mx_block : 0;
    detail::mx_avx2::encode<Element>(x, e / mx_block, out);
    out += mx_bytes<Element>(e);
  }
#endif
  // First converts some blocks and finds their largest values: the codes of a block would wait for both.
  constexpr std::size_t blocks = 8;
  for (; e + blocks * mx_block <= n; e += blocks * mx_block) {
    float converted[blocks * mx_block];
    const float* values = converted;
    if constexpr (code_of<T> == element_code::float32)
      values = x + e;
    else
      for (std::size_t b = 0; b < blocks * mx_block; b += mx_block) detail::to_floats(x + e + b, converted + b);
    std::int32_t largest[blocks];
    for (std::size_t b = 0; b < blocks; ++b) largest[b] = detail::largest_of_block(values + b * mx_block);
    for (std::size_t b = 0; b < blocks; ++b, out += mx_bytes<Element>(mx_block)) {
      detail::encode_mx_block<Element>(values + b * mx_block, largest[b], out);
      if constexpr (code_of<T> == element_code::float64)
        if (out[0] < detail::exact_scale) detail::encode_mx_values<Element>(x + e + b * mx_block, out);
    }
  }
  for (; e + mx_block <= n; e += mx_block, out += mx_bytes<Element>(mx_block))
    detail::encode_mx_values<Element>(x + e, out);
  if (e == n) return;
  T block[mx_block] = {};
  std::copy(x + e, x + n, block);
  std::uint8_t last[mx_bytes<Element>(mx_block)];
  detail::encode_mx_values<Element>(block, last);
  std::memcpy(out, last, mx_bytes<Element>(n - e));
}

template <class Element, element T>
  requires is_floating<T>
[[gnu::noinline]] void decode_mx(const std::uint8_t* __restrict in, std::size_t n, T* __restrict out,
                                 [[maybe_unused]] bool by_avx2 = detail::has_avx2()) {
  std::size_t e = 0;
#if defined(__x86_64__) && !defined(__CUDACC__)
  if constexpr (code_of<T> == element_code::float32) {
    e = by_avx2 ? n - n % mx_block : 0;
    detail::mx_avx2::decode<Element>(in, e / mx_block, out);
    in += mx_bytes<Element>(e);
  }
#endif
  float block[mx_block];
  for (; e + mx_block <= n; e += mx_block, in += mx_bytes<Element>(mx_block)) {
    if constexpr (code_of<T> == element_code::float32) {
      detail::decode_mx_block<Element>(in, out + e);
    } else {
      detail::decode_mx_block<Element>(in, block);
      for (std::size_t b = 0; b < mx_block; ++b) out[e + b] = static_cast<T>(block[b]);
    }
  }
  if (e == n) return;
  std::uint8_t last[mx_bytes<Element>(mx_block)] = {};
  std::memcpy(last, in, mx_bytes<Element>(n - e));
  detail::decode_mx_block<Element>(last, block);
  for (std::size_t b = 0; e + b < n; ++b) out[e + b] = static_cast<T>(block[b]);
}

} // namespace spar::inline v0_1::kernel

#ifdef __CUDACC__
#pragma nv_diagnostic pop
#endif
