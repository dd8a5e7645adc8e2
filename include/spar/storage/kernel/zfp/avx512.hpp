// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Decodes groups of zfp blocks by AVX-512, for processors that also have VBMI and GFNI: Ice Lake, Zen 4 and later ones.
#pragma once

#include <spar/core/util/algobase.hpp>
#include <spar/storage/kernel/zfp/codes.hpp>
#include <spar/storage/kernel/zfp/lanes.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__) && !defined(__CUDACC__) // the front end of nvcc fails

#define SPAR_ZFP_AVX512                                                                                                \
  [[gnu::target("avx512f,avx512bw,avx512vl,avx512dq,avx512cd,avx512vbmi,gfni"), gnu::always_inline]]

namespace spar::kernel::detail {

/// Vectors of 64 bytes, and instructions that the compilers name only in headers, which compile slowly.
struct zfp_avx512_vectors {
  using longs [[gnu::vector_size(64)]] = std::uint64_t;
  using words [[gnu::vector_size(64)]] = std::uint32_t;
  using bytes [[gnu::vector_size(64)]] = char;

  /// The element of `table` with the index in each element.
  SPAR_ZFP_AVX512 static longs look(longs table, longs index) {
    longs y;
    asm("vpermq %2, %1, %0" : "=v"(y) : "v"(index), "v"(table));
    return y;
  }
  /// The byte of `table` with the index in the lowest six bits of each byte.
  SPAR_ZFP_AVX512 static longs look(bytes table, longs index) {
    longs y;
    asm("vpermb %2, %1, %0" : "=v"(y) : "v"(index), "v"(table));
    return y;
  }
  // The result is 0 for a distance of 64 (32) or more, which the operators << and >> do not promise.
  SPAR_ZFP_AVX512 static longs up(longs x, longs distance) {
    longs y;
    asm("vpsllvq %2, %1, %0" : "=v"(y) : "v"(x), "v"(distance));
    return y;
  }
  SPAR_ZFP_AVX512 static words up(words x, words distance) {
    words y;
    asm("vpsllvd %2, %1, %0" : "=v"(y) : "v"(x), "v"(distance));
    return y;
  }
  SPAR_ZFP_AVX512 static longs down(longs x, longs distance) {
    longs y;
    asm("vpsrlvq %2, %1, %0" : "=v"(y) : "v"(x), "v"(distance));
    return y;
  }
  /// In each byte, the eight bits of x from the position in that byte of `from` on.
  SPAR_ZFP_AVX512 static longs bits_from(longs x, longs from) {
    longs y;
    asm("vpmultishiftqb %2, %1, %0" : "=v"(y) : "v"(from), "v"(x));
    return y;
  }
  /// In bit 7 - i of each byte, the parity of (that byte of x & byte i of the matrix).
  SPAR_ZFP_AVX512 static longs product(longs x, longs matrix) {
    longs y;
    asm("vgf2p8affineqb $0, %2, %1, %0" : "=v"(y) : "v"(x), "v"(matrix));
    return y;
  }
  SPAR_ZFP_AVX512 static longs leading_zeros(longs x) {
    longs y;
    asm("vplzcntq %1, %0" : "=v"(y) : "v"(x));
    return y;
  }
  SPAR_ZFP_AVX512 static bool is_zero(longs x) {
    unsigned char mask;
    asm("vptestmq %1, %1, %0" : "=Yk"(mask) : "v"(x));
    return mask == 0;
  }
  SPAR_ZFP_AVX512 static longs larger(longs x, longs y) { return x > y ? x : y; }
  SPAR_ZFP_AVX512 static longs difference_or_0(longs x, longs y) { return larger(x, y) - y; }
};

/// What a code decodes to by the six bits behind a test bit that is 1, if no value has bits in higher planes: the
/// plane, and in bits 4 to 6 the length of its code.
struct zfp_avx512_planes {
  zfp_avx512_vectors::bytes of{};

  zfp_avx512_planes() {
    for (unsigned plane = 1; plane < 16; ++plane) {
      const zfp_plane code = zfp_code_of(plane, 0);
      for (unsigned next = 0; next < 64; ++next) {
        if (((2 * next + 1) & zfp_mask(code.length)) == code.code)
          of[next] = static_cast<char>(plane | code.length << 4);
      }
    }
  }
  static const zfp_avx512_planes& get() {
    static const zfp_avx512_planes all;
    return all;
  }
};

/// Decodes the planes of eight blocks. As long as no value gets its first bit, the codes of planes have n + 1 bits, of
/// which the last one is a test bit, and one step spreads this run of planes to four bits each. A test bit that is 1
/// ends the run, and the step decodes its plane. With n = 3, each plane is its four bits, so three such steps suffice.
struct zfp_avx512_reader : zfp_avx512_vectors {
  longs rest;  // the bits of the codes that are not decoded, and zeros
  longs used;  // the number of bits that are decoded
  longs known; // the number n of values that have bits, where 3 also means 4
  longs found; // up to 16 planes of four bits each, the highest plane lowest
  longs size;  // the number of bits in `found`
  longs run;   // the next 16 planes with four bits each, up to the first test bit that is 1
  longs ends;  // the test bits of `run` that are 1

  /// Begins with the bits `all`, and decodes the first run, which is zeros, and the plane that ends it.
  SPAR_ZFP_AVX512 void begin(longs all, bytes planes) {
    rest = all, used = longs{};
    const longs zeros = 63 - leading_zeros(rest & -rest);
    const auto is_here = __builtin_bit_cast(longs, zeros < 16);
    const longs entry = look(planes, down(rest, zeros + 1)) & 0x7f & is_here;
    found = up(entry & 15, 4 * zeros);
    size = (4 * zeros + 4) & is_here;
    take((zeros & is_here) + (entry >> 4));
    known = known_of(entry);
  }
  /// Spreads the next codes of n + 1 bits to four bits each.
  SPAR_ZFP_AVX512 void spread() {
    const longs from{0x0e0c0a0806040200, 0x1c1814100c080400, 0x2a241e18120c0600, 0x3830282018100800};
    const longs matrices{0x0100000002000000, 0x0102000004080000, 0x0102040008102000, 0x0102040810204080};
    const longs tests{0x1111111111111111, 0x2222222222222222, 0x4444444444444444, 0};
    run = product(bits_from(rest, look(from, known)), look(matrices, known));
    ends = run & look(tests, known) & down(longs{} - 1, size);
  }
  /// Decodes a run and the plane that ends it, unless no test bit of the run is 1.
  SPAR_ZFP_AVX512 void step(bytes planes) {
    const longs end = ends & -ends;
    const auto is_here = __builtin_bit_cast(longs, ends != 0);
    const longs at = 63 - known - leading_zeros(end), length = length_of(at);
    const longs entry = look(planes, up(down(rest, length + known + 1), known)) & 0x7f & is_here;
    found |= up((run & (end - 1) & is_here) | up(entry & 15, at), size);
    size += (at + 4) & is_here;
    take((length & is_here) + (entry >> 4));
    known = larger(known, known_of(entry));
  }
  /// Decodes a run up to the 16th plane.
  SPAR_ZFP_AVX512 void finish(unsigned limit) {
    // Where a code ends within zeros before a value's bit, that value has the bit.
    const longs top = down(longs{} + (1ULL << 63), leading_zeros(found)) & 0x8888888888888888;
    found ^= top ^ down(top, difference_or_0(used, longs{} + limit));
    found |= up(run, size);
    take(length_of(64 - size));
  }
  /// Gathers 16 planes to 16 bits of each of the four values, the highest plane in the highest bit.
  SPAR_ZFP_AVX512 static longs values_of(longs found) {
    const longs pairs = (bits_from(found, longs{} + 0x1c1814100c080400) & 0x0f0f0f0f0f0f0f0f) |
                        (bits_from(found, longs{} + 0x3834302c2824201c) & 0xf0f0f0f0f0f0f0f0);
    return product(longs{} + 0x0880044002200110, pairs);
  }

 private:
  SPAR_ZFP_AVX512 void take(longs length) {
    rest = down(rest, length);
    used += length;
  }
  /// The length of the codes of a run of planes that has `spread_bits` bits when it is spread.
  SPAR_ZFP_AVX512 longs length_of(longs spread_bits) const {
    using shorts [[gnu::vector_size(64)]] = std::uint16_t;
    const shorts bits = __builtin_bit_cast(shorts, spread_bits) * __builtin_bit_cast(shorts, known + 1);
    return __builtin_bit_cast(longs, bits) >> 2;
  }
  /// The values with bits of the plane in an entry's bits 0 to 3, as `known`.
  SPAR_ZFP_AVX512 static longs known_of(longs entry) {
    const bytes of_plane{0, 1, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3};
    return look(of_plane, entry & 15);
  }
};

/// The positions of the codes of eight blocks in 64 bytes. The blocks are in the order 0, 4, 1, 5, 2, 6, 3, 7, which
/// `zfp_avx512_values` needs.
struct zfp_avx512_positions : zfp_avx512_vectors {
  longs bytes_of, bytes_behind, shift;

  explicit zfp_avx512_positions(unsigned limit) {
    for (unsigned b = 0; b < 8; ++b) {
      const std::uint64_t at = (b / 2 + b % 2 * 4) * limit;
      bytes_of[b] = at / 8 * 0x0101010101010101 + 0x0706050403020100;
      bytes_behind[b] = bytes_of[b] + 0x0101010101010101;
      shift[b] = at % 8;
    }
  }
  /// Loads the codes of eight blocks. Accesses 32 bytes if `limit` is at most 32, otherwise 64 bytes.
  SPAR_ZFP_AVX512 longs codes(const std::byte* in, unsigned limit) const {
    longs all;
    if (limit <= 32) {
      using half [[gnu::vector_size(32)]] = std::uint64_t;
      half lower;
      std::memcpy(&lower, in, sizeof(lower));
      all = __builtin_shufflevector(lower, lower, 0, 1, 2, 3, 0, 1, 2, 3);
    } else {
      std::memcpy(&all, in, sizeof(all));
    }
    const auto table = __builtin_bit_cast(bytes, all);
    return (down(look(table, bytes_of), shift) | up(look(table, bytes_behind), 8 - shift)) & zfp_mask(limit);
  }
};

/// The coefficients of 16 blocks, and their values.
template <class T>
struct zfp_avx512_values;

template <>
struct zfp_avx512_values<float> : zfp_avx512_vectors {
  using integers [[gnu::vector_size(64)]] = std::int32_t;
  using floats [[gnu::vector_size(64)]] = float;

  words a{}, b{}, c{}, d{}; // of the blocks 0, 4, 8, 12, 1, 5, 9, 13, 2, ...

  /// Adds the bits of 16 planes, below those of `above` times as many.
  SPAR_ZFP_AVX512 void add(int above, longs p, longs q) {
    const words ab = even(p, q), cd = odd(p, q);
    const int distance = 16 * above;
    a |= ab << 16 >> distance, b |= ab >> 16 << 16 >> distance;
    c |= cd << 16 >> distance, d |= cd >> 16 << 16 >> distance;
  }
  /// As `zfp_lanes<float>::inverse`. `p` and `q` contain the headers of the blocks.
  SPAR_ZFP_AVX512 void store(longs p, longs q, float* x) {
    a = binary(a), b = binary(b), c = binary(c), d = binary(d);
    b += half(d), d -= half(b);
    b += d, d += d - b;
    c += a, a += a - c;
    b += c, c += c - b;
    d += a, a += a - d;
    const words exponent = (even(p, q) >> 1 & 0xff) - 30;
    const auto factor = __builtin_bit_cast(
        floats, __builtin_bit_cast(integers, exponent) > 0 ? exponent << 23 : up(words{} + 1, exponent + 22));
    const floats v = floating(a) * factor, w = floating(b) * factor, y = floating(c) * factor, z = floating(d) * factor;
    const floats lower = zipped(v, w), upper = zipped2(v, w), lower2 = zipped(y, z), upper2 = zipped2(y, z);
    put(x, joined(lower, lower2)), put(x + 16, joined2(lower, lower2));
    put(x + 32, joined(upper, upper2)), put(x + 48, joined2(upper, upper2));
  }

 private:
  SPAR_ZFP_AVX512 static words even(longs p, longs q) {
    return __builtin_shufflevector(__builtin_bit_cast(words, p), __builtin_bit_cast(words, q), 0, 2, 16, 18, 4, 6, 20,
                                   22, 8, 10, 24, 26, 12, 14, 28, 30);
  }
  SPAR_ZFP_AVX512 static words odd(longs p, longs q) {
    return __builtin_shufflevector(__builtin_bit_cast(words, p), __builtin_bit_cast(words, q), 1, 3, 17, 19, 5, 7, 21,
                                   23, 9, 11, 25, 27, 13, 15, 29, 31);
  }
  SPAR_ZFP_AVX512 static words half(words x) { return __builtin_bit_cast(words, __builtin_bit_cast(integers, x) >> 1); }
  SPAR_ZFP_AVX512 static words binary(words x) { return (x ^ 0xaaaaaaaa) - 0xaaaaaaaa; }
  SPAR_ZFP_AVX512 static floats floating(words x) {
    return __builtin_convertvector(__builtin_bit_cast(integers, x), floats);
  }
  SPAR_ZFP_AVX512 static floats zipped(floats x, floats y) {
    return __builtin_shufflevector(x, y, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
  }
  SPAR_ZFP_AVX512 static floats zipped2(floats x, floats y) {
    return __builtin_shufflevector(x, y, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
  }
  SPAR_ZFP_AVX512 static floats joined(floats x, floats y) {
    return __builtin_shufflevector(x, y, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
  }
  SPAR_ZFP_AVX512 static floats joined2(floats x, floats y) {
    return __builtin_shufflevector(x, y, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
  }
  SPAR_ZFP_AVX512 static void put(float* x, floats v) { std::memcpy(x, &v, sizeof(v)); }
};

template <>
struct zfp_avx512_values<double> : zfp_avx512_vectors {
  using integers [[gnu::vector_size(64)]] = std::int64_t;
  using doubles [[gnu::vector_size(64)]] = double;

  longs a[2]{}, b[2]{}, c[2]{}, d[2]{}; // of the blocks 0, 4, 1, 5, 2, 6, 3, 7, and of those behind

  SPAR_ZFP_AVX512 void add(int above, longs p, longs q) {
    add_eight(0, 48 - 16 * above, p), add_eight(1, 48 - 16 * above, q);
  }
  SPAR_ZFP_AVX512 void store(longs p, longs q, double* x) { store_eight(0, p, x), store_eight(1, q, x + 32); }

 private:
  SPAR_ZFP_AVX512 void add_eight(int i, int lowest, longs x) {
    a[i] |= (x & 0xffff) << lowest, b[i] |= (x >> 16 & 0xffff) << lowest;
    c[i] |= (x >> 32 & 0xffff) << lowest, d[i] |= (x >> 48) << lowest;
  }
  SPAR_ZFP_AVX512 void store_eight(int i, longs code, double* x) {
    const longs exponent = (code >> 1 & 0x7ff), kept = up(longs{} - 1, difference_or_0(longs{} + 9, exponent));
    longs p = binary(a[i] & kept), q = binary(b[i] & kept), r = binary(c[i] & kept), s = binary(d[i] & kept);
    q += half(s), s -= half(q);
    q += s, s += s - q;
    r += p, p += p - r;
    q += r, r += r - q;
    s += p, p += p - s;
    const longs biased = exponent - 62;
    const auto factor = __builtin_bit_cast(
        doubles, __builtin_bit_cast(integers, biased) > 0 ? biased << 52 : up(longs{} + 1, biased + 51));
    const doubles v = floating(p) * factor, w = floating(q) * factor, y = floating(r) * factor,
                  z = floating(s) * factor;
    // The blocks 0, 1, 2, 3 and 4, 5, 6, 7.
    const doubles vw = __builtin_shufflevector(v, w, 0, 8, 2, 10, 4, 12, 6, 14),
                  vw2 = __builtin_shufflevector(v, w, 1, 9, 3, 11, 5, 13, 7, 15);
    const doubles yz = __builtin_shufflevector(y, z, 0, 8, 2, 10, 4, 12, 6, 14),
                  yz2 = __builtin_shufflevector(y, z, 1, 9, 3, 11, 5, 13, 7, 15);
    put(x, joined(vw, yz)), put(x + 8, joined2(vw, yz)), put(x + 16, joined(vw2, yz2)), put(x + 24, joined2(vw2, yz2));
  }
  SPAR_ZFP_AVX512 static longs half(longs x) { return __builtin_bit_cast(longs, __builtin_bit_cast(integers, x) >> 1); }
  SPAR_ZFP_AVX512 static longs binary(longs x) { return (x ^ 0xaaaaaaaaaaaaaaaa) - 0xaaaaaaaaaaaaaaaa; }
  SPAR_ZFP_AVX512 static doubles floating(longs x) {
    return __builtin_convertvector(__builtin_bit_cast(integers, x), doubles);
  }
  SPAR_ZFP_AVX512 static doubles joined(doubles x, doubles y) {
    return __builtin_shufflevector(x, y, 0, 1, 8, 9, 2, 3, 10, 11);
  }
  SPAR_ZFP_AVX512 static doubles joined2(doubles x, doubles y) {
    return __builtin_shufflevector(x, y, 4, 5, 12, 13, 6, 7, 14, 15);
  }
  SPAR_ZFP_AVX512 static void put(double* x, doubles v) { std::memcpy(x, &v, sizeof(v)); }
};

/// As `zfp_decode_groups`, for up to 64 bits per block. May read up to 31 bytes beyond the groups.
template <class T>
[[gnu::target("avx512f,avx512bw,avx512vl,avx512dq,avx512cd,avx512vbmi,gfni"), gnu::noinline]]
void zfp_decode_by_avx512(const std::byte* in, std::size_t groups, unsigned limit, T* x) {
  using reader = zfp_avx512_reader;
  constexpr unsigned header = zfp_format<T>::header;
  const auto planes = zfp_avx512_planes::get().of;
  const zfp_avx512_positions positions(limit);
  for (; groups > 0; --groups, x += 4 * zfp_blocks, in += zfp_blocks / 8 * limit) {
    reader::longs code = positions.codes(in, limit), code2 = positions.codes(in + limit, limit);
    code &= -(code & 1), code2 &= -(code2 & 1); // blocks of zeros
    // Two vectors in turn, because each step waits for the one before.
    reader p, q;
    p.begin(code >> header, planes), q.begin(code2 >> header, planes);
    zfp_avx512_values<T> values;
    for (int above = 0;;) {
      for (p.spread(), q.spread(); !reader::is_zero(p.ends | q.ends); p.spread(), q.spread())
        p.step(planes), q.step(planes);
      p.finish(limit - header), q.finish(limit - header);
      values.add(above, reader::values_of(p.found), reader::values_of(q.found));
      if (++above == sizeof(T) / 2 || reader::is_zero(p.rest | q.rest)) break;
      p.found = p.size = q.found = q.size = reader::longs{};
    }
    values.store(code, code2, x);
  }
}

} // namespace spar::kernel::detail

#undef SPAR_ZFP_AVX512
#endif
