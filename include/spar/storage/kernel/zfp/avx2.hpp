// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Encodes and decodes groups of zfp blocks by AVX2 and BMI2, for processors that have them.
#pragma once

#include <spar/core/util/algobase.hpp>
#include <spar/storage/kernel/zfp/decode.hpp>
#include <spar/storage/kernel/zfp/encode.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)

#define SPAR_ZFP_AVX2 [[gnu::target("avx2"), gnu::always_inline]]

namespace spar::inline v0_1::kernel::detail {

/// Codes eight planes of four blocks at a time. With M the bits of the values that have bits in higher planes, and q
/// the bits of the other values, the code of a plane p is (p & M) | ((`code`[q] + M) & ~M), and its length is the
/// larger one of `length`[q] and `least_length`[M].
struct zfp_avx2_tables {
  using bytes [[gnu::vector_size(32)]] = char;

  bytes code{}, length{}, least_length{};
  bytes filled{};       // the bits up to the highest one
  bytes power_of_two{}; // of the index, up to 7

  zfp_avx2_tables() {
    for (unsigned q = 0; q < 16; ++q) {
      const zfp_plane plane = zfp_code_of(q, 0);
      const unsigned known = q == 1 ? 1 : q == 3 ? 2 : q == 7 ? 3 : q == 15 ? 4 : 0; // other M do not exist
      for (unsigned i = q; i < 32; i += 16) {
        code[i] = static_cast<char>(plane.code);
        length[i] = static_cast<char>(plane.length);
        least_length[i] = static_cast<char>(known < 4 ? known + 1 : 4);
        filled[i] = static_cast<char>((1U << std::bit_width(q)) - 1);
        power_of_two[i] = static_cast<char>(q < 8 ? 1U << q : 0);
      }
    }
  }
  static const zfp_avx2_tables& get() {
    static const zfp_avx2_tables all;
    return all;
  }
};

/// Exchanges bits of each 32 bits. A bit's number is (not r1, not r0, p2, p1, p0) with p its position in a byte and r
/// its value; it becomes (not p1, not p0, p2, r1, r0): the upper halves of the bytes are the four highest planes.
template <class V>
SPAR_ZFP_AVX2 inline V zfp_avx2_planes(V x) {
  const V differ = (x ^ x >> 18) & 0x00003333;
  x ^= differ ^ differ << 18;
  const V differ2 = (x ^ x >> 9) & 0x00550055;
  return x ^ differ2 ^ differ2 << 9;
}

/// The codes of four blocks, as they grow.
template <bool Wide>
struct zfp_avx2_codes {
  using bytes [[gnu::vector_size(32)]] = char;
  using signed_bytes [[gnu::vector_size(32)]] = signed char;
  using shorts [[gnu::vector_size(32)]] = short;
  using words [[gnu::vector_size(32)]] = unsigned;
  using signed_longs [[gnu::vector_size(32)]] = long long;
  using longs [[gnu::vector_size(32)]] = unsigned long long;

  longs low, high, length;
  longs known; // in each byte, the bits of the values that have bits in higher planes

  /// Appends eight planes, a byte each, the highest one lowest.
  template <bool First>
  SPAR_ZFP_AVX2 void append(const zfp_avx2_tables& tables, longs planes, int header) {
    const bytes last{7, 7, 7, 7, 7, 7, 7, 7, 15, 15, 15, 15, 15, 15, 15, 15,
                     7, 7, 7, 7, 7, 7, 7, 7, 15, 15, 15, 15, 15, 15, 15, 15};
    constexpr unsigned word = 0xffffffff;
    longs filled = look(tables.filled, planes);
    filled |= filled << 8, filled |= filled << 16, filled |= filled << 32;
    const longs above = First ? filled << 8 : filled << 8 | known;
    const longs end = look(__builtin_bit_cast(bytes, filled), __builtin_bit_cast(longs, last));
    known = First ? end : known | end;
    const longs rest = planes & ~above;
    const longs codes = (planes & above) | ((look(tables.code, rest) + above) & ~above); // no byte overflows
    const auto length_of_rest = __builtin_bit_cast(signed_bytes, look(tables.length, rest));
    const auto least_length = __builtin_bit_cast(signed_bytes, look(tables.least_length, above));
    const auto lengths = __builtin_bit_cast(bytes, length_of_rest > least_length ? length_of_rest : least_length);
    // Concatenates neighbouring codes of bytes, then of 16 bits, then of 32 bits.
    const longs factors = look(tables.power_of_two, __builtin_bit_cast(longs, lengths));
    const auto codes16 = __builtin_bit_cast(
        words, __builtin_ia32_pmaddubsw256(
                   __builtin_bit_cast(bytes, __builtin_bit_cast(shorts, factors) << 8 | static_cast<short>(1)),
                   __builtin_bit_cast(bytes, codes)));
    // Not bytes{} + 1: nvcc 13.0 crashes where it adds a constant to {} of less than 64 bits.
    const shorts lengths16 =
        __builtin_ia32_pmaddubsw256(lengths, __builtin_bit_cast(bytes, longs{} + 0x0101010101010101));
    const auto codes32 = __builtin_bit_cast(
        longs, (codes16 & 0xffff) | (codes16 >> 16) << (__builtin_bit_cast(words, lengths16) & 0xffff));
    const auto lengths32 = __builtin_bit_cast(
        longs, __builtin_ia32_pmaddwd256(lengths16, __builtin_bit_cast(shorts, longs{} + 0x0001000100010001)));
    const longs code = (codes32 & word) | (codes32 >> 32) << (lengths32 & word);
    const longs added = (lengths32 & word) + (lengths32 >> 32);
    if constexpr (First) {
      low |= code << header;
      if constexpr (Wide) high = code >> (64 - header);
      length = added + static_cast<unsigned>(header);
    } else {
      low |= shifted_up(code, length);
      if constexpr (Wide) high |= shifted_up(code, length - 64) | shifted_down(code, 64 - length);
      length += added;
    }
  }
  /// For each block, all bits if it has less than `limit` bits, and not only zeros.
  SPAR_ZFP_AVX2 longs has_room(unsigned limit) const {
    return __builtin_bit_cast(longs, __builtin_bit_cast(signed_longs, length) < static_cast<long long>(limit)) & low;
  }

 private:
  SPAR_ZFP_AVX2 static longs look(bytes table, longs index) {
    return __builtin_bit_cast(longs, __builtin_ia32_pshufb256(table, __builtin_bit_cast(bytes, index)));
  }
  // The result is 0 for a distance of 64 or more, which the operators << and >> do not promise.
  SPAR_ZFP_AVX2 static longs shifted_up(longs x, longs distance) {
    return __builtin_bit_cast(longs, __builtin_ia32_psllv4di(__builtin_bit_cast(signed_longs, x),
                                                             __builtin_bit_cast(signed_longs, distance)));
  }
  SPAR_ZFP_AVX2 static longs shifted_down(longs x, longs distance) {
    return __builtin_bit_cast(longs, __builtin_ia32_psrlv4di(__builtin_bit_cast(signed_longs, x),
                                                             __builtin_bit_cast(signed_longs, distance)));
  }
};

/// The coefficients of eight blocks.
template <class T>
struct zfp_avx2_blocks;

template <>
struct zfp_avx2_blocks<float> {
  using longs [[gnu::vector_size(32)]] = unsigned long long;
  using vectors = zfp_vectors<float, 32>;
  using words = vectors::bits;
  using floats = vectors::value;

  /// The four values at x and those at y.
  SPAR_ZFP_AVX2 static floats joined(const float* x, const float* y) {
    using four [[gnu::vector_size(16)]] = float;
    four p, q;
    std::memcpy(&p, x, 16), std::memcpy(&q, y, 16);
    return __builtin_shufflevector(p, q, 0, 1, 2, 3, 4, 5, 6, 7);
  }

  words a, b, c, d; // of the blocks 0, 1, 4, 5, 2, 3, 6, 7: the order that `unpack` needs

  /// Loads blocks, and sets the headers of the blocks 0 to 3 and 4 to 7.
  SPAR_ZFP_AVX2 void load(const float* x, longs& header, longs& header2) {
    const floats m = joined(x, x + 8), n = joined(x + 4, x + 12), o = joined(x + 16, x + 24),
                 p = joined(x + 20, x + 28);
    const auto mn = __builtin_shufflevector(m, n, 0, 8, 1, 9, 4, 12, 5, 13);
    const auto mn2 = __builtin_shufflevector(m, n, 2, 10, 3, 11, 6, 14, 7, 15);
    const auto op = __builtin_shufflevector(o, p, 0, 8, 1, 9, 4, 12, 5, 13);
    const auto op2 = __builtin_shufflevector(o, p, 2, 10, 3, 11, 6, 14, 7, 15);
    const floats v[4] = {__builtin_shufflevector(mn, op, 0, 1, 8, 9, 4, 5, 12, 13),
                         __builtin_shufflevector(mn, op, 2, 3, 10, 11, 6, 7, 14, 15),
                         __builtin_shufflevector(mn2, op2, 0, 1, 8, 9, 4, 5, 12, 13),
                         __builtin_shufflevector(mn2, op2, 2, 3, 10, 11, 6, 7, 14, 15)};
    words u[4], headers;
    vectors::transform(v, u, headers);
    unpack(headers, words{}, header, header2);
    a = u[0], b = u[1], c = u[2], d = u[3];
  }
  /// The planes of the bytes that begin at the bit `lowest`, of the blocks 0 to 3 and 4 to 7.
  SPAR_ZFP_AVX2 void planes(int lowest, longs& first, longs& second) const {
    const words x = zfp_avx2_planes((a >> lowest & 0xff) << 24 | (b >> lowest & 0xff) << 16 |
                                    (c >> lowest & 0xff) << 8 | (d >> lowest & 0xff));
    unpack(x >> 4 & 0x0f0f0f0f, x & 0x0f0f0f0f, first, second);
  }

 private:
  /// Makes 64 bits of 32 lower and 32 upper bits.
  SPAR_ZFP_AVX2 static void unpack(words lower, words upper, longs& first, longs& second) {
    first = __builtin_bit_cast(longs, __builtin_shufflevector(lower, upper, 0, 8, 1, 9, 4, 12, 5, 13));
    second = __builtin_bit_cast(longs, __builtin_shufflevector(lower, upper, 2, 10, 3, 11, 6, 14, 7, 15));
  }
};

template <>
struct zfp_avx2_blocks<double> {
  using longs [[gnu::vector_size(32)]] = unsigned long long;

  longs a[2], b[2], c[2], d[2];

  SPAR_ZFP_AVX2 void load(const double* x, longs& header, longs& header2) {
    load_four(x, 0, header);
    load_four(x + 16, 1, header2);
  }
  SPAR_ZFP_AVX2 void planes(int lowest, longs& first, longs& second) const {
    first = planes_of_four(lowest, 0), second = planes_of_four(lowest, 1);
  }

 private:
  SPAR_ZFP_AVX2 void load_four(const double* x, int i, longs& header) {
    using lanes = zfp_lanes<double>;
    lanes::value v[4], w[4];
    lanes::bits s[4], t[4], p, q;
    lanes::load(x, v), lanes::load(x + 8, w);
    lanes::transform(v, s, p), lanes::transform(w, t, q);
    header = joined(p, q);
    a[i] = joined(s[0], t[0]), b[i] = joined(s[1], t[1]), c[i] = joined(s[2], t[2]), d[i] = joined(s[3], t[3]);
  }
  SPAR_ZFP_AVX2 longs planes_of_four(int lowest, int i) const {
    const longs x = zfp_avx2_planes((a[i] >> lowest & 0xff) << 24 | (b[i] >> lowest & 0xff) << 16 |
                                    (c[i] >> lowest & 0xff) << 8 | (d[i] >> lowest & 0xff));
    return (x >> 4 & 0x0f0f0f0f) | (x & 0x0f0f0f0f) << 32;
  }
  SPAR_ZFP_AVX2 static longs joined(zfp_lanes<double>::bits x, zfp_lanes<double>::bits y) {
    return __builtin_bit_cast(longs, __builtin_shufflevector(x, y, 0, 1, 2, 3));
  }
};

/// As `zfp_encode_groups`.
template <class T, bool Wide>
[[gnu::target("avx2"), gnu::noinline]] void zfp_encode_by_avx2(const T* x, std::size_t groups, unsigned limit,
                                                               std::byte* out) {
  using codes = zfp_avx2_codes<Wide>;
  using format = zfp_format<T>;
  static_assert(zfp_blocks == 16);
  const zfp_avx2_tables& tables = zfp_avx2_tables::get();
  const unsigned parts = zfp_parts_within<T>(limit);
  for (; groups > 0; --groups, x += 4 * zfp_blocks, out += zfp_blocks / 8 * limit) {
    // Four independent vectors, because each result of a vector waits for the one before.
    zfp_avx2_blocks<T> first, second;
    codes p, q, r, s;
    first.load(x, p.low, q.low);
    second.load(x + 32, r.low, s.low);
    int lowest = format::planes - 8;
    typename codes::longs a, b, c, d;
    first.planes(lowest, a, b), second.planes(lowest, c, d);
    p.template append<true>(tables, a, format::header), q.template append<true>(tables, b, format::header);
    r.template append<true>(tables, c, format::header), s.template append<true>(tables, d, format::header);
    for (unsigned part = 1; part < parts; ++part) {
      const auto room = __builtin_bit_cast(typename codes::signed_longs, p.has_room(limit) | q.has_room(limit) |
                                                                             r.has_room(limit) | s.has_room(limit));
      if (__builtin_ia32_ptestz256(room, room) != 0) break;
      lowest -= 8;
      first.planes(lowest, a, b), second.planes(lowest, c, d);
      p.template append<false>(tables, a, 0), q.template append<false>(tables, b, 0);
      r.template append<false>(tables, c, 0), s.template append<false>(tables, d, 0);
    }
    typename codes::longs low[4] = {p.low, q.low, r.low, s.low}, high[4];
    const std::uint64_t mask = zfp_mask(Wide ? limit - 64 : limit);
    if constexpr (Wide)
      high[0] = p.high & mask, high[1] = q.high & mask, high[2] = r.high & mask, high[3] = s.high & mask;
    else
      low[0] &= mask, low[1] &= mask, low[2] &= mask, low[3] &= mask;
    std::uint64_t low_words[zfp_blocks], high_words[zfp_blocks];
    std::memcpy(low_words, low, sizeof(low));
    if constexpr (Wide) std::memcpy(high_words, high, sizeof(high));
    zfp_put<Wide>(low_words, high_words, limit, out);
  }
}
/// As `zfp_decoded<float>::transform`, for eight blocks at a time.
struct zfp_avx2_values {
  using shorts [[gnu::vector_size(32)]] = short;
  using longs [[gnu::vector_size(32)]] = unsigned long long;
  using vectors = zfp_vectors<float, 32>;
  using words = vectors::bits;
  using floats = vectors::value;

  SPAR_ZFP_AVX2 static void transform(const zfp_decoded<float>& group, float* x, bool add) {
    for (unsigned first = 0; first < zfp_blocks; first += 8) {
      words u[4] = {};
      int lowest = 24;
      for (unsigned part = 0; part < group.parts; ++part, lowest -= 8) {
        const words four = bytes(group.planes + first * group.room + 8 * part);
        u[0] |= (four >> 24) << lowest, u[1] |= (four >> 16 & 0xff) << lowest;
        u[2] |= (four >> 8 & 0xff) << lowest, u[3] |= (four & 0xff) << lowest;
      }
      floats v[4], factor;
      std::memcpy(&factor, group.factors + first, 32);
      vectors::inverse(u, factor, v);
      store(v[0], v[1], v[2], v[3], x + 4 * first, add);
    }
  }

 private:
  /// The bytes of the coefficients of eight blocks, of eight planes from `from` on.
  SPAR_ZFP_AVX2 static words bytes(const std::byte* from) {
    constexpr std::size_t room = zfp_decoded<float>::room;
    const auto pairs = pairs_of(from, from + 4 * room), pairs2 = pairs_of(from + 2 * room, from + 6 * room);
    auto x = __builtin_bit_cast(words, __builtin_ia32_packuswb256(pairs, pairs2)); // in the order of the blocks
    x = exchanged<9>(exchanged<18>(x, 0x00003333), 0x00550055);
    return exchanged<1>(exchanged<2>(x, 0x0c0c0c0c), 0x22222222);
  }
  /// Eight pairs of planes of each of the blocks at p and q, and of those behind them.
  SPAR_ZFP_AVX2 static shorts pairs_of(const std::byte* p, const std::byte* q) {
    using unsigned_shorts [[gnu::vector_size(32)]] = unsigned short;
    constexpr std::size_t room = zfp_decoded<float>::room;
    using two_longs [[gnu::vector_size(16)]] = unsigned long long;
    const two_longs lower{zfp_load(p), zfp_load(p + room)}, upper{zfp_load(q), zfp_load(q + room)};
    const auto x = __builtin_bit_cast(unsigned_shorts, __builtin_shufflevector(lower, upper, 0, 1, 2, 3));
    return __builtin_bit_cast(shorts, (x << 4 | x >> 8) & 0xff);
  }
  template <int Distance>
  SPAR_ZFP_AVX2 static words exchanged(words x, unsigned mask) {
    const words differ = (x ^ x >> Distance) & mask;
    return x ^ differ ^ differ << Distance;
  }
  SPAR_ZFP_AVX2 static void store(floats a, floats b, floats c, floats d, float* x, bool add) {
    const auto ab = __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13);
    const auto ab2 = __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15);
    const auto cd = __builtin_shufflevector(c, d, 0, 8, 1, 9, 4, 12, 5, 13);
    const auto cd2 = __builtin_shufflevector(c, d, 2, 10, 3, 11, 6, 14, 7, 15);
    put(x, __builtin_shufflevector(ab, cd, 0, 1, 8, 9, 4, 5, 12, 13), add);       // the blocks 0 and 4
    put(x + 4, __builtin_shufflevector(ab, cd, 2, 3, 10, 11, 6, 7, 14, 15), add); // 1 and 5
    put(x + 8, __builtin_shufflevector(ab2, cd2, 0, 1, 8, 9, 4, 5, 12, 13), add);
    put(x + 12, __builtin_shufflevector(ab2, cd2, 2, 3, 10, 11, 6, 7, 14, 15), add);
  }
  SPAR_ZFP_AVX2 static void put(float* x, floats v, bool add) {
    if (add) v += zfp_avx2_blocks<float>::joined(x, x + 16);
    const auto lower = __builtin_shufflevector(v, v, 0, 1, 2, 3), upper = __builtin_shufflevector(v, v, 4, 5, 6, 7);
    std::memcpy(x, &lower, 16), std::memcpy(x + 16, &upper, 16);
  }
};

/// As `zfp_decode_groups`.
template <class T, bool Wide>
[[gnu::target("avx2,bmi,bmi2"), gnu::noinline]] void zfp_decode_by_avx2(const std::byte* in, std::size_t groups,
                                                                        unsigned limit, T* x, bool add) {
  const std::uint64_t* const windows = zfp_codes::get().windows;
  zfp_decoded<T> group;
  for (; groups > 0; --groups, x += 4 * zfp_blocks, in += zfp_blocks / 8 * limit) {
    group.template parse<Wide>(in, limit, windows);
    if constexpr (zfp_format<T>::is_double)
      group.transform(x, add);
    else
      zfp_avx2_values::transform(group, x, add);
  }
}

} // namespace spar::inline v0_1::kernel::detail

#undef SPAR_ZFP_AVX2
#endif
