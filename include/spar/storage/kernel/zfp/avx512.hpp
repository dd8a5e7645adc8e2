// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Encodes and decodes groups of zfp blocks of up to 64 bits by AVX-512, for processors that also have VBMI and GFNI:
// Ice Lake, Zen 4 and later ones.
#pragma once

#include <spar/core/util/algobase.hpp>
#include <spar/storage/kernel/zfp/avx2.hpp>
#include <spar/storage/kernel/zfp/codes.hpp>
#include <spar/storage/kernel/zfp/encode.hpp>
#include <spar/storage/kernel/zfp/lanes.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)

#define SPAR_ZFP_AVX512                                                                                                \
  [[gnu::target("avx512f,avx512bw,avx512vl,avx512dq,avx512cd,avx512vbmi,gfni"), gnu::always_inline]]

namespace spar::inline v0_1::kernel::detail {

/// Vectors of 64 bytes, and instructions that the compilers name only in headers, which compile slowly. The assembly is
/// in the syntax of AT&T and in that of Intel.
struct zfp_avx512_vectors {
  using longs [[gnu::vector_size(64)]] = std::uint64_t;
  using words [[gnu::vector_size(64)]] = std::uint32_t;
  using bytes [[gnu::vector_size(64)]] = char;
  using half [[gnu::vector_size(32)]] = std::uint64_t;

  SPAR_ZFP_AVX512 static longs twice(half x) { return __builtin_shufflevector(x, x, 0, 1, 2, 3, 0, 1, 2, 3); }
  /// The element of `table` with the index in each element.
  SPAR_ZFP_AVX512 static longs look(longs table, longs index) {
    longs y;
    asm("vpermq {%2, %1, %0|%0, %1, %2}" : "=v"(y) : "v"(index), "v"(table));
    return y;
  }
  /// The byte of `table` with the index in the lowest six bits of each byte.
  SPAR_ZFP_AVX512 static longs look(bytes table, longs index) {
    longs y;
    asm("vpermb {%2, %1, %0|%0, %1, %2}" : "=v"(y) : "v"(index), "v"(table));
    return y;
  }
  /// The byte of each 16 bytes of `table` with the index in each byte.
  SPAR_ZFP_AVX512 static longs look_in_16(bytes table, longs index) {
    longs y;
    asm("vpshufb {%2, %1, %0|%0, %1, %2}" : "=v"(y) : "v"(table), "v"(index));
    return y;
  }
  /// The byte of `table` and `table2` with the index in the lowest seven bits of each byte of `index`.
  SPAR_ZFP_AVX512 static longs look(longs table, longs table2, longs index) {
    asm("vpermi2b {%2, %1, %0|%0, %1, %2}" : "+v"(index) : "v"(table), "v"(table2));
    return index;
  }
  /// Sums of neighbouring products, of unsigned bytes with signed ones, and of 16 bits.
  SPAR_ZFP_AVX512 static longs products_of_bytes(longs x, longs y) {
    longs z;
    asm("vpmaddubsw {%2, %1, %0|%0, %1, %2}" : "=v"(z) : "v"(x), "v"(y));
    return z;
  }
  SPAR_ZFP_AVX512 static longs products_of_shorts(longs x, longs y) {
    longs z;
    asm("vpmaddwd {%2, %1, %0|%0, %1, %2}" : "=v"(z) : "v"(x), "v"(y));
    return z;
  }
  // The result is 0 for a distance of 64 (32) or more, which the operators << and >> do not promise.
  SPAR_ZFP_AVX512 static longs up(longs x, longs distance) {
    longs y;
    asm("vpsllvq {%2, %1, %0|%0, %1, %2}" : "=v"(y) : "v"(x), "v"(distance));
    return y;
  }
  SPAR_ZFP_AVX512 static words up(words x, words distance) {
    words y;
    asm("vpsllvd {%2, %1, %0|%0, %1, %2}" : "=v"(y) : "v"(x), "v"(distance));
    return y;
  }
  SPAR_ZFP_AVX512 static longs down(longs x, longs distance) {
    longs y;
    asm("vpsrlvq {%2, %1, %0|%0, %1, %2}" : "=v"(y) : "v"(x), "v"(distance));
    return y;
  }
  /// In each byte, the eight bits of x from the position in that byte of `from` on.
  SPAR_ZFP_AVX512 static longs bits_from(longs x, longs from) {
    longs y;
    asm("vpmultishiftqb {%2, %1, %0|%0, %1, %2}" : "=v"(y) : "v"(from), "v"(x));
    return y;
  }
  /// In bit 7 - i of each byte, the parity of (that byte of x & byte i of the matrix).
  SPAR_ZFP_AVX512 static longs product(longs x, longs matrix) {
    longs y;
    asm("vgf2p8affineqb {$0, %2, %1, %0|%0, %1, %2, 0}" : "=v"(y) : "v"(x), "v"(matrix));
    return y;
  }
  SPAR_ZFP_AVX512 static longs leading_zeros(longs x) {
    longs y;
    asm("vplzcntq {%1, %0|%0, %1}" : "=v"(y) : "v"(x));
    return y;
  }
  SPAR_ZFP_AVX512 static bool is_zero(longs x) {
    unsigned char mask;
    asm("vptestmq {%1, %1, %0|%0, %1, %1}" : "=Yk"(mask) : "v"(x));
    return mask == 0;
  }
  template <class V>
  SPAR_ZFP_AVX512 static V larger(V x, V y) {
    return x > y ? x : y;
  }
  template <class V>
  SPAR_ZFP_AVX512 static V difference_or_0(V x, V y) {
    return larger(x, y) - y;
  }
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
    const longs beyond = difference_or_0(used, longs{} + limit);
    if (!is_zero(beyond)) {
      const longs top = down(longs{} + (1ULL << 63), leading_zeros(found)) & 0x8888888888888888;
      found ^= top ^ down(top, beyond);
    }
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

/// The coefficients of a group of 16 blocks, in vectors of which each has one coefficient of some blocks. Lane i of a
/// vector of codes has the block `block_of(i)`.
template <class T>
struct zfp_avx512_group : zfp_avx512_vectors {
  using format = zfp_format<T>;
  using vectors = zfp_vectors<T, 64>;
  using value = typename vectors::value;
  using integer = typename vectors::integer;
  using bits = typename vectors::bits;
  static constexpr int count = format::is_double ? 2 : 1; // of the vectors that a coefficient of all blocks needs

  bits u[count][4]{};

  static constexpr unsigned block_of(unsigned lane) {
    return format::is_double ? lane % 4 * 2 + lane / 4 : lane % 2 * 4 + lane / 2;
  }

  /// Loads blocks and sets their headers.
  SPAR_ZFP_AVX512 void load(const T* x, longs& header, longs& header2) {
    if constexpr (format::is_double)
      header = load_part<0>(x), header2 = load_part<1>(x + 32);
    else
      unpack(load_part<0>(x), bits{}, header, header2);
  }
  /// The planes of the bytes that begin at the bit `lowest`, a byte each, the highest plane lowest.
  SPAR_ZFP_AVX512 void planes(int lowest, longs& first, longs& second) const {
    if constexpr (format::is_double)
      first = bytes_at<0>(lowest), second = bytes_at<1>(lowest);
    else
      unpack(bits{}, bytes_at<0>(lowest), first, second);
    const longs highest_first = longs{} + 0x0102040810204080;
    first = product(highest_first, first), second = product(highest_first, second);
  }
  /// Adds 16 planes, below `above` times as many: 16 bits of each value.
  SPAR_ZFP_AVX512 void add(int above, longs first, longs second) {
    const int distance = 16 * above;
    if constexpr (format::is_double) {
      add_part<0>(48 - distance, first), add_part<1>(48 - distance, second);
    } else {
      const words ab = even(first, second), cd = odd(first, second);
      u[0][0] |= ab << 16 >> distance, u[0][1] |= ab >> 16 << 16 >> distance;
      u[0][2] |= cd << 16 >> distance, u[0][3] |= cd >> 16 << 16 >> distance;
    }
  }
  /// Stores the values of blocks with these headers to `x`, or adds them to the values there.
  SPAR_ZFP_AVX512 void store(longs header, longs header2, T* x, bool add) {
    if constexpr (format::is_double)
      store_part<0>(header, x, add), store_part<1>(header2, x + 32, add);
    else
      store_part<0>(even(header, header2), x, add);
  }

 private:
  /// Loads and transforms blocks. Returns their headers.
  template <int Part>
  SPAR_ZFP_AVX512 bits load_part(const T* x) {
    value v[4];
    std::memcpy(v, x, sizeof(v));
    transpose(v);
    bits header;
    vectors::transform(v, u[Part], header);
    return header;
  }
  /// Transforms coefficients back, and stores or adds the values.
  template <int Part>
  SPAR_ZFP_AVX512 void store_part(bits header, T* x, bool add) {
    const bits exponent = header >> 1 & (2 * format::bias + 1);
    if constexpr (format::is_double) {
      const bits kept = up(longs{} - 1, difference_or_0(longs{} + 9, exponent)); // as `format::kept`
      u[Part][0] &= kept, u[Part][1] &= kept, u[Part][2] &= kept, u[Part][3] &= kept;
    }
    const bits biased = exponent - (format::planes - 2); // as `format::factor`
    // Not bits{} + 1: nvcc 13.0 crashes where it adds a constant to {} of less than 64 bits.
    const auto one = __builtin_bit_cast(bits, longs{} + (format::is_double ? 1 : 0x100000001));
    const auto factor =
        __builtin_bit_cast(value, __builtin_bit_cast(integer, biased) > 0 ? biased << format::mantissa
                                                                          : up(one, biased + (format::mantissa - 1)));
    value v[4];
    vectors::inverse(u[Part], factor, v);
    transpose(v);
    if (add) {
      value old[4];
      std::memcpy(old, x, sizeof(old));
      v[0] += old[0], v[1] += old[1], v[2] += old[2], v[3] += old[3];
    }
    std::memcpy(x, v, sizeof(v));
  }
  template <int Part>
  SPAR_ZFP_AVX512 bits bytes_at(int lowest) const {
    constexpr int top = format::planes - 8;
    return u[Part][0] >> lowest << top | (u[Part][1] >> lowest & 0xff) << (top - 8) |
           (u[Part][2] >> lowest & 0xff) << (top - 16) | (u[Part][3] >> lowest & 0xff) << (top - 24);
  }
  template <int Part>
  SPAR_ZFP_AVX512 void add_part(int lowest, bits x) {
    u[Part][0] |= (x & 0xffff) << lowest, u[Part][1] |= (x >> 16 & 0xffff) << lowest;
    u[Part][2] |= (x >> 32 & 0xffff) << lowest, u[Part][3] |= (x >> 48) << lowest;
  }
  /// Exchanges rows and columns of each 4 * 4 values.
  SPAR_ZFP_AVX512 static void transpose(value (&v)[4]) {
    if constexpr (format::is_double) {
      const value a = __builtin_shufflevector(v[0], v[1], 0, 8, 2, 10, 4, 12, 6, 14);
      const value b = __builtin_shufflevector(v[0], v[1], 1, 9, 3, 11, 5, 13, 7, 15);
      const value c = __builtin_shufflevector(v[2], v[3], 0, 8, 2, 10, 4, 12, 6, 14);
      const value d = __builtin_shufflevector(v[2], v[3], 1, 9, 3, 11, 5, 13, 7, 15);
      v[0] = __builtin_shufflevector(a, c, 0, 1, 8, 9, 4, 5, 12, 13);
      v[1] = __builtin_shufflevector(b, d, 0, 1, 8, 9, 4, 5, 12, 13);
      v[2] = __builtin_shufflevector(a, c, 2, 3, 10, 11, 6, 7, 14, 15);
      v[3] = __builtin_shufflevector(b, d, 2, 3, 10, 11, 6, 7, 14, 15);
    } else {
      const value a = zipped(v[0], v[1]), b = zipped2(v[0], v[1]), c = zipped(v[2], v[3]), d = zipped2(v[2], v[3]);
      v[0] = __builtin_shufflevector(a, c, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
      v[1] = __builtin_shufflevector(a, c, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
      v[2] = __builtin_shufflevector(b, d, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29);
      v[3] = __builtin_shufflevector(b, d, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
    }
  }
  // Each 16 bytes: the values of x and y in turn, of their lower and upper halves.
  template <class V>
  SPAR_ZFP_AVX512 static V zipped(V x, V y) {
    return __builtin_shufflevector(x, y, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29);
  }
  template <class V>
  SPAR_ZFP_AVX512 static V zipped2(V x, V y) {
    return __builtin_shufflevector(x, y, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
  }
  /// Makes 64 bits of 32 lower and 32 upper bits.
  SPAR_ZFP_AVX512 static void unpack(bits lower, bits upper, longs& first, longs& second) {
    first = __builtin_bit_cast(longs, zipped(lower, upper)), second = __builtin_bit_cast(longs, zipped2(lower, upper));
  }
  /// The lower (upper) halves of 64 bits, in the order that `unpack` needs.
  SPAR_ZFP_AVX512 static words even(longs x, longs y) {
    return __builtin_shufflevector(__builtin_bit_cast(words, x), __builtin_bit_cast(words, y), 0, 2, 16, 18, 4, 6, 20,
                                   22, 8, 10, 24, 26, 12, 14, 28, 30);
  }
  SPAR_ZFP_AVX512 static words odd(longs x, longs y) {
    return __builtin_shufflevector(__builtin_bit_cast(words, x), __builtin_bit_cast(words, y), 1, 3, 17, 19, 5, 7, 21,
                                   23, 9, 11, 25, 27, 13, 15, 29, 31);
  }
};

/// Where the bytes of the codes of eight blocks are, if the code of block `block_of(i)` goes to lane i.
struct zfp_avx512_positions : zfp_avx512_vectors {
  longs bytes_of, bytes_behind, shift;

  zfp_avx512_positions(unsigned limit, unsigned (*block_of)(unsigned)) {
    for (unsigned b = 0; b < 8; ++b) {
      const std::uint64_t at = block_of(b) * limit;
      bytes_of[b] = at / 8 * 0x0101010101010101 + 0x0706050403020100;
      bytes_behind[b] = bytes_of[b] + 0x0101010101010101;
      shift[b] = at % 8;
    }
  }
  /// Loads the codes of eight blocks. Accesses 32 bytes if `limit` is at most 32, otherwise 64 bytes.
  SPAR_ZFP_AVX512 longs codes(const std::byte* in, unsigned limit) const {
    longs all;
    if (limit <= 32) {
      half lower;
      std::memcpy(&lower, in, sizeof(lower));
      all = twice(lower);
    } else {
      std::memcpy(&all, in, sizeof(all));
    }
    const auto table = __builtin_bit_cast(bytes, all);
    return (down(look(table, bytes_of), shift) | up(look(table, bytes_behind), 8 - shift)) & zfp_mask(limit);
  }
};

/// Decodes a group.
template <class T>
struct zfp_avx512_decoder : zfp_avx512_vectors {
  static constexpr unsigned header = zfp_format<T>::header;

  longs code, code2;
  zfp_avx512_reader p, q;
  zfp_avx512_group<T> group;

  SPAR_ZFP_AVX512 void begin(const std::byte* in, unsigned limit, const zfp_avx512_positions& positions, bytes planes) {
    code = positions.codes(in, limit), code2 = positions.codes(in + limit, limit);
    code &= -(code & 1), code2 &= -(code2 & 1); // blocks of zeros
    p.begin(code >> header, planes), q.begin(code2 >> header, planes);
  }
  SPAR_ZFP_AVX512 longs spread() {
    p.spread(), q.spread();
    return p.ends | q.ends;
  }
  SPAR_ZFP_AVX512 void step(bytes planes) { p.step(planes), q.step(planes); }
  /// Adds 16 planes, below `above` times as many, to the group. Returns bits, of which some is 1 if a block has more.
  SPAR_ZFP_AVX512 longs finish(int above, unsigned limit) {
    p.finish(limit - header), q.finish(limit - header);
    group.add(above, p.values_of(p.found), q.values_of(q.found));
    p.found = p.size = q.found = q.size = longs{};
    return p.rest | q.rest;
  }
};

/// As `zfp_decode_groups`, for up to 64 bits per block. May read up to 31 bytes beyond the groups.
template <class T>
[[gnu::target("avx512f,avx512bw,avx512vl,avx512dq,avx512cd,avx512vbmi,gfni"), gnu::noinline]]
void zfp_decode_by_avx512(const std::byte* in, std::size_t groups, unsigned limit, T* x, bool add) {
  using decoder = zfp_avx512_decoder<T>;
  const auto planes = zfp_avx512_planes::get().of;
  const zfp_avx512_positions positions(limit, zfp_avx512_group<T>::block_of);
  while (groups > 0) {
    // Two groups in turn, because each step waits for the one before. The last group may be both.
    const std::size_t second = groups > 1 ? 1 : 0;
    decoder d, e;
    d.begin(in, limit, positions, planes), e.begin(in + second * 2 * limit, limit, positions, planes);
    for (int above = 0; above < int{sizeof(T)} / 2; ++above) {
      while (!decoder::is_zero(d.spread() | e.spread())) d.step(planes), e.step(planes);
      if (decoder::is_zero(d.finish(above, limit) | e.finish(above, limit))) break;
    }
    d.group.store(d.code, d.code2, x, add);
    if (second != 0) e.group.store(e.code, e.code2, x + 4 * zfp_blocks, add);
    groups -= 1 + second, in += (1 + second) * 2 * limit, x += (1 + second) * 4 * zfp_blocks;
  }
}

/// The codes of eight blocks, as they grow, by the same steps as `zfp_avx2_codes`.
struct zfp_avx512_codes : zfp_avx512_vectors {
  using signed_bytes [[gnu::vector_size(64)]] = signed char;
  using shorts [[gnu::vector_size(64)]] = std::uint16_t;

  /// The tables of `zfp_avx2_codes`, for vectors of 64 bytes.
  struct tables {
    bytes code, length, least_length, filled, power_of_two;
    SPAR_ZFP_AVX512 explicit tables(const zfp_avx2_tables& all)
        : code(of(all.code)), length(of(all.length)), least_length(of(all.least_length)), filled(of(all.filled)),
          power_of_two(of(all.power_of_two)) {}
    SPAR_ZFP_AVX512 static bytes of(const zfp_avx2_tables::bytes& x) {
      return __builtin_bit_cast(bytes, twice(__builtin_bit_cast(half, x)));
    }
  };

  longs code, length, known;

  /// As `zfp_avx2_codes::append`.
  template <bool First>
  SPAR_ZFP_AVX512 void append(const tables& t, longs planes, unsigned header) {
    constexpr std::uint64_t word = 0xffffffff;
    longs filled = look_in_16(t.filled, planes);
    filled |= filled << 8, filled |= filled << 16, filled |= filled << 32;
    const longs above = First ? filled << 8 : filled << 8 | known;
    const longs last{0x0707070707070707, 0x0f0f0f0f0f0f0f0f, 0x0707070707070707, 0x0f0f0f0f0f0f0f0f,
                     0x0707070707070707, 0x0f0f0f0f0f0f0f0f, 0x0707070707070707, 0x0f0f0f0f0f0f0f0f};
    const longs end = look_in_16(__builtin_bit_cast(bytes, filled), last);
    known = First ? end : known | end;
    const longs rest = planes & ~above;
    const longs codes = (planes & above) | ((look_in_16(t.code, rest) + above) & ~above); // no byte overflows
    const auto length_of_rest = __builtin_bit_cast(signed_bytes, look_in_16(t.length, rest));
    const auto least_length = __builtin_bit_cast(signed_bytes, look_in_16(t.least_length, above));
    const auto lengths = __builtin_bit_cast(longs, length_of_rest > least_length ? length_of_rest : least_length);
    // Concatenates neighbouring codes of bytes, then of 16 bits, then of 32 bits.
    const longs factors = look_in_16(t.power_of_two, lengths);
    const auto codes16 =
        __builtin_bit_cast(words, products_of_bytes((factors << 8 & 0xff00ff00ff00ff00) | 0x0001000100010001, codes));
    const longs lengths16 = products_of_bytes(lengths, longs{} + 0x0101010101010101);
    const auto codes32 = __builtin_bit_cast(
        longs, (codes16 & 0xffff) | up(codes16 >> 16, __builtin_bit_cast(words, lengths16) & 0xffff));
    const longs lengths32 = products_of_shorts(lengths16, longs{} + 0x0001000100010001);
    const longs added = (codes32 & word) | up(codes32 >> 32, lengths32 & word);
    if constexpr (First) {
      code |= added << header;
      length = (lengths32 & word) + (lengths32 >> 32) + header;
    } else {
      code |= up(added, length);
      length += (lengths32 & word) + (lengths32 >> 32);
    }
  }
  /// Whether a block has less than `limit` bits, and not only zeros.
  SPAR_ZFP_AVX512 static bool have_room(const zfp_avx512_codes& p, const zfp_avx512_codes& q, unsigned limit) {
    const longs most = longs{} + limit;
    return !is_zero((__builtin_bit_cast(longs, p.length < most) & p.code) |
                    (__builtin_bit_cast(longs, q.length < most) & q.code));
  }
};

/// Where the bytes of the codes of eight blocks go, if lane i has the code of block `block_of(i)`.
struct zfp_avx512_places : zfp_avx512_vectors {
  longs first, second; // of each byte of the output: the bytes of up to two shifted codes
  longs shift;

  zfp_avx512_places(unsigned limit, unsigned (*block_of)(unsigned)) {
    // A shifted code has up to nine bytes, of which the last one is in a second vector, where byte 1 is always 0.
    std::uint8_t of[2][64];
    std::memset(of, 64 + 1, sizeof(of));
    for (unsigned lane = 0; lane < 8; ++lane) {
      const unsigned begin = block_of(lane) * limit, end = begin + limit;
      shift[lane] = begin % 8;
      for (unsigned i = begin / 8; 8 * i < end; ++i) {
        const unsigned byte = i - begin / 8;
        of[8 * i < begin ? 1 : 0][i] = static_cast<std::uint8_t>(byte < 8 ? 8 * lane + byte : 64 + 8 * lane);
      }
    }
    std::memcpy(&first, of[0], 64), std::memcpy(&second, of[1], 64);
  }
  SPAR_ZFP_AVX512 void put(longs codes, unsigned limit, std::byte* out) const {
    const longs shifted = up(codes, shift), behind = down(codes, 64 - shift);
    const longs all = look(shifted, behind, first) | look(shifted, behind, second);
    if (limit <= 32)
      std::memcpy(out, &all, 32);
    else
      std::memcpy(out, &all, 64);
  }
};

/// As `zfp_encode_groups`, for up to 64 bits per block. May write up to 31 bytes beyond the groups.
template <class T>
[[gnu::target("avx512f,avx512bw,avx512vl,avx512dq,avx512cd,avx512vbmi,gfni"), gnu::noinline]]
void zfp_encode_by_avx512(const T* x, std::size_t groups, unsigned limit, std::byte* out) {
  using codes = zfp_avx512_codes;
  constexpr unsigned header = zfp_format<T>::header;
  const codes::tables tables(zfp_avx2_tables::get());
  const zfp_avx512_places places(limit, zfp_avx512_group<T>::block_of);
  const unsigned parts = zfp_parts_within<T>(limit);
  for (; groups > 0; --groups, x += 4 * zfp_blocks, out += zfp_blocks / 8 * limit) {
    zfp_avx512_group<T> group;
    codes p, q;
    group.load(x, p.code, q.code);
    int lowest = zfp_format<T>::planes - 8;
    codes::longs a, b;
    group.planes(lowest, a, b);
    p.template append<true>(tables, a, header), q.template append<true>(tables, b, header);
    for (unsigned part = 1; part < parts && codes::have_room(p, q, limit); ++part) {
      lowest -= 8;
      group.planes(lowest, a, b);
      p.template append<false>(tables, a, 0), q.template append<false>(tables, b, 0);
    }
    places.put(p.code & zfp_mask(limit), limit, out);
    places.put(q.code & zfp_mask(limit), limit, out + limit);
  }
}

} // namespace spar::inline v0_1::kernel::detail

#undef SPAR_ZFP_AVX512
#endif
