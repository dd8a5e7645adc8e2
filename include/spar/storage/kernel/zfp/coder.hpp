// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Encodes vectors of floats or doubles in one-dimensional fixed-rate zfp blocks, and decodes them, with the bits of
// libzfp (Lindstrom 2014).
#pragma once

#include <spar/core/util/algobase.hpp>
#include <spar/storage/kernel/zfp/avx2.hpp>
#include <spar/storage/kernel/zfp/avx512.hpp>
#include <spar/storage/kernel/zfp/decode.hpp>
#include <spar/storage/kernel/zfp/encode.hpp>

#include <cstddef>
#include <cstring>

namespace spar::inline v0_1::kernel::detail {

template <class T, bool Wide>
[[gnu::noinline]] void zfp_encode_portably(const T* x, std::size_t groups, unsigned limit, std::byte* out) {
  zfp_encode_groups<T, Wide>(x, groups, limit, out);
}
template <class T, bool Wide>
[[gnu::noinline]] void zfp_decode_portably(const std::byte* in, std::size_t groups, unsigned limit, T* x, bool add) {
  zfp_decode_groups<T, Wide>(in, groups, limit, x, add);
}

/// The functions that encode and decode groups, with up to 64 bits per block and with more.
template <class T>
struct zfp_coder {
  static constexpr std::size_t values = 4 * zfp_blocks, most_bytes = 2 * 128; // of a group

  using encoder = void (*)(const T* x, std::size_t groups, unsigned limit, std::byte* out);
  using decoder = void (*)(const std::byte* in, std::size_t groups, unsigned limit, T* x, bool add);
  encoder encode, encode_wide;
  decoder decode, decode_wide;
};
template <class T>
inline constexpr zfp_coder<T> zfp_portable{zfp_encode_portably<T, false>, zfp_encode_portably<T, true>,
                                           zfp_decode_portably<T, false>, zfp_decode_portably<T, true>};

#if defined(__x86_64__)
template <class T>
inline constexpr zfp_coder<T> zfp_avx2{zfp_encode_by_avx2<T, false>, zfp_encode_by_avx2<T, true>,
                                       zfp_decode_by_avx2<T, false>, zfp_decode_by_avx2<T, true>};
template <class T>
inline constexpr zfp_coder<T> zfp_avx512{zfp_encode_by_avx512<T>, zfp_encode_by_avx2<T, true>, zfp_decode_by_avx512<T>,
                                         zfp_decode_by_avx2<T, true>};
inline bool has_zfp_avx2() {
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("bmi") != 0 &&
         __builtin_cpu_supports("bmi2") != 0;
}
inline bool has_zfp_avx512() {
  return has_zfp_avx2() && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
         __builtin_cpu_supports("avx512cd") != 0 && __builtin_cpu_supports("avx512vbmi") != 0 &&
         __builtin_cpu_supports("gfni") != 0;
}
#endif

/// The fastest coder that this processor can run.
template <class T>
const zfp_coder<T>& zfp_best() {
#if defined(__x86_64__)
  if (has_zfp_avx512()) return zfp_avx512<T>;
  if (has_zfp_avx2()) return zfp_avx2<T>;
#endif
  return zfp_portable<T>;
}

/// The number of groups of n values that a coder can process in place. The last one or two groups need memory of their
/// own, because a coder accesses bytes beyond a group.
template <class T>
constexpr std::size_t zfp_groups_in_place(std::size_t n) {
  const std::size_t groups = (n + zfp_coder<T>::values - 1) / zfp_coder<T>::values;
  return groups < 2 ? 0 : groups - 2;
}

template <class T>
void zfp_encode_by(const zfp_coder<T>& coder, const T* x, std::size_t n, unsigned limit, std::byte* out) {
  constexpr std::size_t values = zfp_coder<T>::values;
  const auto encode = limit <= 64 ? coder.encode : coder.encode_wide;
  const std::size_t direct = zfp_groups_in_place<T>(n), left = n - direct * values, blocks = (left + 3) / 4;
  encode(x, direct, limit, out);
  T last[2 * values] = {};
  std::byte code[2 * zfp_coder<T>::most_bytes + 8];
  std::copy(x + direct * values, x + n, last);
  // As libzfp does, the last block repeats values: a a a a, a b b a or a b c a.
  if (left % 4 == 1) last[left] = last[left + 1] = last[left + 2] = last[left - 1];
  if (left % 4 == 2) last[left] = last[left - 1], last[left + 1] = last[left - 2];
  if (left % 4 == 3) last[left] = last[left - 3];
  encode(last, 2, limit, code);
  const std::size_t begin = direct * 2 * limit, end = begin + (blocks * limit + 7) / 8;
  std::copy(code, code + (end - begin), out + begin);
  std::fill(out + end, out + (end + 7) / 8 * 8, std::byte{});
}
template <class T>
void zfp_decode_by(const zfp_coder<T>& coder, const std::byte* in, std::size_t n, unsigned limit, T* x,
                   bool add = false) {
  constexpr std::size_t values = zfp_coder<T>::values;
  const auto decode = limit <= 64 ? coder.decode : coder.decode_wide;
  const std::size_t direct = zfp_groups_in_place<T>(n), left = n - direct * values, blocks = (left + 3) / 4;
  decode(in, direct, limit, x, add);
  T last[2 * values] = {};
  std::byte code[2 * zfp_coder<T>::most_bytes + 16] = {};
  in += direct * 2 * limit;
  std::copy(in, in + (blocks * limit + 7) / 8, code);
  x += direct * values;
  if (add) std::copy(x, x + left, last);
  decode(code, 2, limit, last, add);
  std::copy(last, last + left, x);
}

} // namespace spar::inline v0_1::kernel::detail

namespace spar::inline v0_1::kernel {

/// Returns whether all n values are finite, with magnitudes of at most an eighth of the largest finite number.
template <class T>
bool is_zfp_encodable(const T* x, std::size_t n) {
  using format = detail::zfp_format<T>;
  using bits = typename format::bits;
  // Such values have exponents below 2 * bias - 2. Adding the rest to the highest bit sets this bit for all others.
  constexpr bits sign = bits{1} << (format::planes - 1);
  constexpr bits rest = sign - (static_cast<bits>(2 * format::bias - 2) << format::mantissa);
  typename detail::zfp_lanes<T>::bits all{};
  constexpr std::size_t count = detail::zfp_lanes<T>::count;
  for (; n >= count; n -= count, x += count) {
    typename detail::zfp_lanes<T>::bits four;
    std::memcpy(&four, x, sizeof(four));
    all |= (four & ~sign) + rest;
  }
  bits any = 0;
  for (std::size_t i = 0; i < count; ++i) any |= all[i];
  for (std::size_t i = 0; i < n; ++i) any |= (__builtin_bit_cast(bits, x[i]) & ~sign) + rest;
  return (any & sign) == 0;
}
/// Encodes n values in blocks of four values and `limit` bits, from 16 to 128: the bits of libzfp with the rate
/// `limit` / 4, in whole 64-bit words. A block in which every |value| is below 2^-98 (double: 2^-962) is encoded as
/// zeros. The values must be as `is_zfp_encodable` says.
template <class T>
[[gnu::noinline]] void encode_zfp(const T* x, std::size_t n, unsigned limit, std::byte* out) {
  detail::zfp_encode_by(detail::zfp_best<T>(), x, n, limit, out);
}
/// Decodes n values to `x`, or adds them to the values at `x`. Any bits are valid.
template <class T>
[[gnu::noinline]] void decode_zfp(const std::byte* in, std::size_t n, unsigned limit, T* x, bool add = false) {
  detail::zfp_decode_by(detail::zfp_best<T>(), in, n, limit, x, add);
}

} // namespace spar::inline v0_1::kernel
