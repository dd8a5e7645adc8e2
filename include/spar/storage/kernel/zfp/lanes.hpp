// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The transform of zfp blocks in vectors, and loads and stores of bits.
#pragma once

#include <spar/storage/kernel/zfp/format.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace spar::inline v0_1::kernel::detail {

/// The number of blocks in a group. The codes of a group fill whole bytes at any rate.
inline constexpr unsigned zfp_blocks = 16;

static_assert(std::endian::native == std::endian::little,
              "storage::zfp and storage::named_codec, which contains it, need a little-endian machine; on others, use "
              "the types of other storages");

[[gnu::always_inline]] inline std::uint64_t zfp_load(const std::byte* from) {
  std::uint64_t word;
  std::memcpy(&word, from, 8);
  return word;
}
[[gnu::always_inline]] inline void zfp_store(std::byte* to, std::uint64_t word) { std::memcpy(to, &word, 8); }
/// The lowest `count` bits.
constexpr std::uint64_t zfp_mask(unsigned count) { return count < 64 ? (std::uint64_t{1} << count) - 1 : ~0ULL; }

/// Exchanges the bits in `mask` with those `Distance` bits above.
template <unsigned Distance, class V>
[[gnu::always_inline]] inline V zfp_exchange(V x, std::uint32_t mask) {
  const V differ = (x ^ x >> Distance) & mask;
  return x ^ differ ^ differ << Distance;
}

/// Vectors of `Size` bytes with a value, or a number of its size, of each of some blocks, and the transform of these
/// blocks. The functions need no attribute `target`, because they get the instructions of the function into which they
/// are inlined. They take vectors by reference: compilers warn of larger vectors by value without this attribute.
template <class T, std::size_t Size>
struct zfp_vectors {
  using format = zfp_format<T>;
  using value [[gnu::vector_size(Size)]] = T;
  using integer [[gnu::vector_size(Size)]] = typename format::integer;
  using bits [[gnu::vector_size(Size)]] = typename format::bits;
  static constexpr std::size_t count = Size / sizeof(T);

  // Loops over the four values of a block are unrolled by hand: g++ -O2 would keep the values in memory.

  /// Computes the coefficients of blocks, in negabinary, and their headers.
  [[gnu::always_inline]] static void transform(const value (&v)[4], bits (&u)[4], bits& header) {
    integer m[4];
    magnitude(v[0], m[0]), magnitude(v[1], m[1]), magnitude(v[2], m[2]), magnitude(v[3], m[3]);
    raise_to(m[1], m[0]), raise_to(m[3], m[2]), raise_to(m[2], m[0]);
    const bits exponent = __builtin_bit_cast(bits, m[0]) >> format::mantissa;
    const auto is_nonzero =
        __builtin_bit_cast(bits, __builtin_bit_cast(integer, exponent) > format::smallest + format::bias - 1);
    header = (2 * exponent + 3) & is_nonzero;
    const auto scale = __builtin_bit_cast(
        value, ((2 * format::bias + format::planes - 3 - exponent) << format::mantissa) & is_nonzero);
    bits &a = u[0], &b = u[1], &c = u[2], &d = u[3];
    truncate(v[0] * scale, a), truncate(v[1] * scale, b), truncate(v[2] * scale, c), truncate(v[3] * scale, d);
    a += d, halve(a), d -= a;
    c += b, halve(c), b -= c;
    a += c, halve(a), c -= a;
    d += b, halve(d), b -= d;
    add_half(b, d), subtract_half(d, b);
    to_negabinary(a), to_negabinary(b), to_negabinary(c), to_negabinary(d);
  }
  /// The inverse of `transform`, with the factors of the blocks. Changes `u`.
  [[gnu::always_inline]] static void inverse(bits (&u)[4], const value& factor, value (&v)[4]) {
    bits &a = u[0], &b = u[1], &c = u[2], &d = u[3];
    to_binary(a), to_binary(b), to_binary(c), to_binary(d);
    add_half(d, b), subtract_half(b, d);
    b += d, d += d - b;
    c += a, a += a - c;
    b += c, c += c - b;
    d += a, a += a - d;
    to_values(a, factor, v[0]), to_values(b, factor, v[1]), to_values(c, factor, v[2]), to_values(d, factor, v[3]);
  }

 private:
  [[gnu::always_inline]] static void magnitude(const value& x, integer& m) {
    m = __builtin_bit_cast(integer, __builtin_bit_cast(bits, x) << 1 >> 1);
  }
  [[gnu::always_inline]] static void raise_to(const integer& least, integer& x) { x = x > least ? x : least; }
  [[gnu::always_inline]] static void truncate(const value& x, bits& y) {
    y = __builtin_bit_cast(bits, __builtin_convertvector(x, integer));
  }
  [[gnu::always_inline]] static void halve(bits& x) {
    x = __builtin_bit_cast(bits, __builtin_bit_cast(integer, x) >> 1);
  }
  [[gnu::always_inline]] static void add_half(const bits& x, bits& to) {
    to += __builtin_bit_cast(bits, __builtin_bit_cast(integer, x) >> 1);
  }
  [[gnu::always_inline]] static void subtract_half(const bits& x, bits& from) {
    from -= __builtin_bit_cast(bits, __builtin_bit_cast(integer, x) >> 1);
  }
  [[gnu::always_inline]] static void to_negabinary(bits& x) { x = (x + format::negabinary) ^ format::negabinary; }
  [[gnu::always_inline]] static void to_binary(bits& x) { x = (x ^ format::negabinary) - format::negabinary; }
  [[gnu::always_inline]] static void to_values(const bits& x, const value& factor, value& v) {
    v = __builtin_convertvector(__builtin_bit_cast(integer, x), value) * factor;
  }
};

/// Vectors of 16 bytes, which all processors have.
template <class T>
struct zfp_lanes : zfp_vectors<T, 16> {
  using value = typename zfp_vectors<T, 16>::value;
  static constexpr std::size_t count = zfp_vectors<T, 16>::count;

  /// Loads the blocks at `x`: value i of each block to v[i]; and stores them, or adds them to the blocks there.
  [[gnu::always_inline]] static void load(const T* x, value (&v)[4]) {
    const value m0 = at(x), m1 = at(x + count), m2 = at(x + 2 * count), m3 = at(x + 3 * count);
    const value a = every_second<0>(m0, m1), b = every_second<1>(m0, m1);
    const value c = every_second<0>(m2, m3), d = every_second<1>(m2, m3);
    v[0] = every_second<0>(a, c), v[1] = every_second<0>(b, d);
    v[2] = every_second<1>(a, c), v[3] = every_second<1>(b, d);
  }
  [[gnu::always_inline]] static void store(const value (&v)[4], T* x, bool add) {
    const value a = zipped<0>(v[0], v[2]), b = zipped<0>(v[1], v[3]);
    const value c = zipped<1>(v[0], v[2]), d = zipped<1>(v[1], v[3]);
    put(x, zipped<0>(a, b), add), put(x + count, zipped<1>(a, b), add);
    put(x + 2 * count, zipped<0>(c, d), add), put(x + 3 * count, zipped<1>(c, d), add);
  }

 private:
  [[gnu::always_inline]] static value at(const T* x) {
    value v;
    std::memcpy(&v, x, sizeof(v));
    return v;
  }
  [[gnu::always_inline]] static void put(T* x, value v, bool add) {
    if (add) v += at(x);
    std::memcpy(x, &v, sizeof(v));
  }
  /// Of the values of a and b: those at even (odd) positions if First is 0 (1).
  template <int First>
  [[gnu::always_inline]] static value every_second(value a, value b) {
    if constexpr (count == 4)
      return __builtin_shufflevector(a, b, First, First + 2, First + 4, First + 6);
    else
      return __builtin_shufflevector(a, b, First, First + 2);
  }
  /// The values of a and b in turn: of their lower (upper) halves if Half is 0 (1).
  template <int Half>
  [[gnu::always_inline]] static value zipped(value a, value b) {
    if constexpr (count == 4)
      return __builtin_shufflevector(a, b, 2 * Half, 4 + 2 * Half, 1 + 2 * Half, 5 + 2 * Half);
    else
      return __builtin_shufflevector(a, b, Half, 2 + Half);
  }
};

} // namespace spar::inline v0_1::kernel::detail
