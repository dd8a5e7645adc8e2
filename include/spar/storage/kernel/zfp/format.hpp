// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The format of one-dimensional fixed-rate zfp blocks (Lindstrom 2014; libzfp 1.0, src/template/encode1.c), for the
// coders of the host and of the device.
#pragma once

#include <spar/core/compiler.hpp>

#include <cstdint>
#include <type_traits>

namespace spar::inline v0_1::kernel::detail {

/// The numbers of zfp's format for a type of values.
template <class T>
struct zfp_format {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, double>);
  static constexpr bool is_double = std::is_same_v<T, double>;

  using integer = std::conditional_t<is_double, std::int64_t, std::int32_t>;
  using bits = std::make_unsigned_t<integer>;

  static constexpr int planes = 8 * sizeof(T);
  static constexpr int mantissa = is_double ? 52 : 23;
  static constexpr int bias = is_double ? 1023 : 127;    // of exponents in the header
  static constexpr unsigned header = is_double ? 12 : 9; // bits
  static constexpr bits negabinary = static_cast<bits>(0xaaaaaaaaaaaaaaaaULL);
  /// A block whose values are all smaller than 2^`smallest` is encoded as zeros: the scale would be infinite.
  static constexpr int smallest = is_double ? -962 : -98;

  /// The factor of decoded integers: the power of two with the biased exponent `exponent` - (`planes` - 2), where
  /// `exponent` is that of the header; a denormal number or 0 if that is not positive.
  SPAR_HOST_DEVICE static constexpr T factor(int exponent) {
    const int biased = exponent - (planes - 2);
    return __builtin_bit_cast(T, biased > 0           ? static_cast<bits>(biased) << mantissa
                                 : biased > -mantissa ? bits{1} << (mantissa - 1 + biased)
                                                      : bits{0});
  }
  /// The bits of coefficients that libzfp decodes: none below 2^-1078, in a block that decodes to zeros of both signs.
  SPAR_HOST_DEVICE static constexpr bits kept(int exponent) {
    return is_double && exponent < 9 ? static_cast<bits>(~bits{0} << (9 - exponent)) : static_cast<bits>(~bits{0});
  }
};

/// A bit plane of a block: its four bits, of value i in bit i, and their code. The first `known` values have bits in
/// this plane or in higher ones.
struct zfp_plane {
  unsigned bits, code, length, known;
};

/// Encodes a plane by group tests. `known` is that of the plane above.
SPAR_HOST_DEVICE constexpr zfp_plane zfp_code_of(unsigned bits, unsigned known) {
  // The bits of the known values, then for each further one whether there is any, and zeros up to it.
  zfp_plane plane{bits, bits & ((1U << known) - 1), known, known};
  unsigned rest = bits >> known;
  const auto add = [&](bool bit) { plane.code |= (bit ? 1U : 0U) << plane.length++; };
  while (plane.known < 4) {
    add(rest != 0);
    if (rest == 0) break;
    for (; plane.known < 3; ++plane.known, rest >>= 1) { // that the last value has a bit needs no code
      add((rest & 1) != 0);
      if ((rest & 1) != 0) break;
    }
    ++plane.known;
    rest >>= 1;
  }
  return plane;
}

} // namespace spar::inline v0_1::kernel::detail
