// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Encodes vectors in device memory in one-dimensional fixed-rate zfp blocks, and decodes them, with the bits of libzfp
// (Lindstrom 2014; libzfp 1.0, src/template/encode1.c). Needs no library.
#pragma once

#include <spar/cuda/kernel/block.cuh>
#include <spar/cuda/kernel/language.cuh>
#include <spar/cuda/kernel/tiles.cuh>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace spar::kernel {

namespace detail {

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
};

/// Up to 128 bits, the first ones lowest. Bits beyond `limit` are dropped when they are added, and read as zeros.
struct zfp_code {
  std::uint64_t low = 0, high = 0;

  __device__ void add(std::uint64_t bits, unsigned at, unsigned limit) {
    if (at >= limit) return;
    if (at < 64) low |= bits << at;
    if (at >= 64)
      high |= bits << (at - 64);
    else if (at > 0)
      high |= bits >> (64 - at);
    if (limit < 64) low &= (1ULL << limit) - 1;
    if (limit <= 64)
      high = 0;
    else if (limit < 128)
      high &= (1ULL << (limit - 64)) - 1;
  }
  __device__ unsigned bit(unsigned at) const {
    return static_cast<unsigned>((at < 64 ? low >> at : high >> (at - 64)) & 1);
  }
};

/// Encodes a block of four values in `limit` bits.
template <class T>
__device__ zfp_code zfp_encode_block(const T (&x)[4], unsigned limit) {
  using format = zfp_format<T>;
  using bits = typename format::bits;
  // The largest exponent. The exponent of a denormal number counts as that of the smallest normal one.
  bits top = 0;
  for (const T v : x) {
    const bits m = static_cast<bits>(__builtin_bit_cast(bits, v) << 1) >> 1;
    if (m > top) top = m;
  }
  const int biased = static_cast<int>(top >> format::mantissa);
  const int exponent = biased - (format::bias - 1); // the largest value is below 2^exponent
  zfp_code code;
  if (exponent <= format::smallest) return code;

  const T scale = __builtin_bit_cast(
      T, static_cast<bits>(static_cast<bits>(format::bias + format::planes - 2 - exponent) << format::mantissa));
  // Unsigned, because the transform wraps around.
  bits v[4];
  for (int i = 0; i < 4; ++i) v[i] = static_cast<bits>(static_cast<typename format::integer>(scale * x[i]));
  const auto halved = [](bits b) { return static_cast<bits>(static_cast<typename format::integer>(b) >> 1); };
  v[0] += v[3], v[0] = halved(v[0]), v[3] -= v[0];
  v[2] += v[1], v[2] = halved(v[2]), v[1] -= v[2];
  v[0] += v[2], v[0] = halved(v[0]), v[2] -= v[0];
  v[3] += v[1], v[3] = halved(v[3]), v[1] -= v[3];
  v[3] += halved(v[1]), v[1] -= halved(v[3]);
  for (bits& b : v) b = (b + format::negabinary) ^ format::negabinary;

  code.add(static_cast<std::uint64_t>(2 * (exponent + format::bias) + 1), 0, limit);
  unsigned at = format::header, known = 0; // values that have bits in higher planes
  for (int plane = format::planes - 1; plane >= 0 && at < limit; --plane) {
    unsigned p = 0;
    for (unsigned i = 0; i < 4; ++i) p |= static_cast<unsigned>(v[i] >> plane & 1) << i;
    // The bits of the known values, then for each further one whether there is any, and zeros up to it.
    std::uint64_t word = p & ((1U << known) - 1);
    unsigned length = known;
    unsigned rest = p >> known;
    while (known < 4) {
      word |= static_cast<std::uint64_t>(rest != 0) << length++;
      if (rest == 0) break;
      for (; known < 3; ++known, rest >>= 1) {
        word |= static_cast<std::uint64_t>(rest & 1) << length++;
        if ((rest & 1) != 0) break;
      }
      ++known;
      rest >>= 1;
    }
    code.add(word, at, limit);
    at += length;
  }
  return code;
}

/// Decodes a block of `limit` bits. Any bits are valid.
template <class T>
__device__ void zfp_decode_block(const zfp_code& code, unsigned limit, T (&x)[4]) {
  using format = zfp_format<T>;
  using bits = typename format::bits;
  if (code.bit(0) == 0) {
    for (T& v : x) v = 0;
    return;
  }
  const int exponent = static_cast<int>(code.low >> 1 & ((1U << (format::header - 1)) - 1)) - format::bias;
  bits v[4] = {};
  unsigned at = format::header, known = 0;
  const auto next = [&] { return code.bit(at++); };
  for (int plane = format::planes - 1; plane >= 0 && at < limit; --plane) {
    unsigned p = 0;
    for (unsigned i = 0; i < known && at < limit; ++i) p |= next() << i;
    while (known < 4 && at < limit) {
      if (next() == 0) break;
      while (known < 3 && at < limit && next() == 0) ++known;
      p |= 1U << known++;
    }
    for (unsigned i = 0; i < 4; ++i) v[i] |= static_cast<bits>(p >> i & 1) << plane;
  }
  for (bits& b : v) b = (b ^ format::negabinary) - format::negabinary;
  const auto halved = [](bits b) { return static_cast<bits>(static_cast<typename format::integer>(b) >> 1); };
  v[1] += halved(v[3]), v[3] -= halved(v[1]);
  v[1] += v[3], v[3] = 2 * v[3] - v[1];
  v[2] += v[0], v[0] = 2 * v[0] - v[2];
  v[1] += v[2], v[2] = 2 * v[2] - v[1];
  v[3] += v[0], v[0] = 2 * v[0] - v[3];
  const T scale = static_cast<T>(ldexp(T(1), exponent - (format::planes - 2)));
  for (int i = 0; i < 4; ++i) x[i] = scale * static_cast<T>(static_cast<typename format::integer>(v[i]));
}

/// Each warp processes 32 blocks, whose bits fill `limit` words of 32 bits; each lane processes a block.
struct zfp_group {
  static constexpr unsigned warps = 4, threads = warps * spar::detail::warp_size, most_bits = 128;
  static constexpr std::uint64_t values = 4 * spar::detail::warp_size;

  struct memory {
    std::uint32_t words[warps][most_bits];
  };
};

template <class T>
__global__ void __launch_bounds__(zfp_group::threads)
    zfp_encode(const T* x, std::uint64_t n, unsigned limit, std::uint32_t* out, std::uint64_t words) {
  auto& shared = spar::detail::block_memory<zfp_group::memory>().words[spar::detail::warp_of_thread()];
  const unsigned lane = spar::detail::lane_of_thread();
  const std::uint64_t group = std::uint64_t{blockIdx.x} * zfp_group::warps + spar::detail::warp_of_thread();
  for (unsigned w = lane; w < limit; w += spar::detail::warp_size) shared[w] = 0;
  __syncthreads();
  const std::uint64_t first = group * zfp_group::values + 4 * lane;
  if (first < n) {
    T v[4];
    const std::uint64_t left = n - first; // the last block repeats values, as libzfp does
    v[0] = x[first];
    v[1] = left > 1 ? x[first + 1] : v[0];
    v[2] = left > 2 ? x[first + 2] : v[1];
    v[3] = left > 3 ? x[first + 3] : v[0];
    const zfp_code code = zfp_encode_block(v, limit);
    // The words of neighbouring lanes may overlap.
    const unsigned at = lane * limit, word = at / 32, shift = at % 32;
    const std::uint32_t quarters[4] = {static_cast<std::uint32_t>(code.low), static_cast<std::uint32_t>(code.low >> 32),
                                       static_cast<std::uint32_t>(code.high),
                                       static_cast<std::uint32_t>(code.high >> 32)};
    for (unsigned q = 0; q < 4; ++q) {
      const std::uint64_t shifted = static_cast<std::uint64_t>(quarters[q]) << shift;
      if (static_cast<std::uint32_t>(shifted) != 0) atomicOr(&shared[word + q], static_cast<std::uint32_t>(shifted));
      if (shifted >> 32 != 0) atomicOr(&shared[word + q + 1], static_cast<std::uint32_t>(shifted >> 32));
    }
  }
  __syncthreads();
  for (unsigned w = lane; w < limit; w += spar::detail::warp_size) {
    const std::uint64_t to = group * limit + w;
    if (to < words) out[to] = shared[w];
  }
}

template <class T>
__global__ void __launch_bounds__(zfp_group::threads)
    zfp_decode(const std::uint32_t* in, std::uint64_t words, std::uint64_t n, unsigned limit, T* x) {
  const unsigned lane = spar::detail::lane_of_thread();
  const std::uint64_t group = std::uint64_t{blockIdx.x} * zfp_group::warps + spar::detail::warp_of_thread();
  const std::uint64_t first = group * zfp_group::values + 4 * lane;
  if (first >= n) return;
  const unsigned at = lane * limit, shift = at % 32;
  const std::uint64_t word = group * limit + at / 32;
  const auto quarter = [&](unsigned q) -> std::uint64_t {
    const std::uint64_t low = word + q < words ? in[word + q] : 0, high = word + q + 1 < words ? in[word + q + 1] : 0;
    return static_cast<std::uint32_t>((high << 32 | low) >> shift);
  };
  zfp_code code{quarter(0) | quarter(1) << 32, quarter(2) | quarter(3) << 32};
  T v[4];
  zfp_decode_block(code, limit, v);
  for (unsigned i = 0; i < 4; ++i) {
    if (first + i < n) x[first + i] = v[i];
  }
}

} // namespace detail

/// The number of 32-bit words of n values that are encoded in blocks of `bits` bits each; an even number, because
/// libzfp writes whole 64-bit words.
constexpr std::uint64_t zfp_words(std::uint64_t n, unsigned bits) { return (((n + 3) / 4 * bits) + 63) / 64 * 2; }

/// Starts a kernel that encodes n values in blocks of four values and `bits` bits, from 16 to 128: the bits of libzfp
/// with the rate `bits` / 4. A block in which every |value| is below 2^-98 (double: 2^-962) is encoded as zeros. The
/// values must be finite, with magnitudes of at most an eighth of the largest finite number. `out` has room for
/// `zfp_words(n, bits)` words. All pointers point to device memory.
template <class T>
void start_zfp_encode(const T* x, std::uint64_t n, unsigned bits, std::uint32_t* out, cudaStream_t stream) {
  using group = detail::zfp_group;
  if (n == 0) return;
  spar::detail::launch(detail::zfp_encode<T>, spar::detail::tiles_of(n, group::warps * group::values), group::threads,
                       sizeof(group::memory), stream, x, n, bits, out, zfp_words(n, bits));
}
/// Starts a kernel that decodes n values.
template <class T>
void start_zfp_decode(const std::uint32_t* in, std::uint64_t n, unsigned bits, T* x, cudaStream_t stream) {
  using group = detail::zfp_group;
  if (n == 0) return;
  spar::detail::launch(detail::zfp_decode<T>, spar::detail::tiles_of(n, group::warps * group::values), group::threads,
                       0, stream, in, zfp_words(n, bits), n, bits, x);
}

} // namespace spar::kernel
