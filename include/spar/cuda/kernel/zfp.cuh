// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Encodes vectors in device memory in one-dimensional fixed-rate zfp blocks, and decodes them, with the bits of libzfp
// (Lindstrom 2014).
#pragma once

#include <spar/cuda/kernel/block.cuh>
#include <spar/cuda/kernel/fours.cuh>
#include <spar/cuda/kernel/language.cuh>
#include <spar/cuda/kernel/tiles.cuh>
#include <spar/storage/kernel/zfp/format.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace spar::inline v0_1::kernel {

namespace detail {

/// The codes of all planes. In each table the plane above decides which part is used.
struct zfp_tables {
  static constexpr unsigned longest = 7, windows = 1U << longest;           // bits of a code
  static constexpr unsigned plane = 15, ends = 1U << 4, part = 7 * windows; // the bits of an entry of `decode`
  static constexpr unsigned length = 13;                                    // and the position of its length

  /// By the bits of a plane: the code, its length from bit 8 on, and the begin of the next part from bit 16 on.
  std::uint32_t encode[5 * 16];
  /// By the next bits of a block: the bits of a plane, `ends` if it is the first plane in which all values are known,
  /// the begin of the next part, and the length of the code.
  std::uint16_t decode[5 * windows];
};
SPAR_HOST_DEVICE constexpr zfp_tables zfp_all_codes() {
  zfp_tables tables{};
  for (unsigned known = 0; known <= 4; ++known) {
    for (unsigned bits = 0; bits < 16; ++bits) {
      const zfp_plane plane = zfp_code_of(bits, known);
      tables.encode[16 * known + bits] = plane.code | plane.length << 8 | (16 * plane.known) << 16;
      for (unsigned next = plane.code; next < zfp_tables::windows; next += 1U << plane.length)
        tables.decode[zfp_tables::windows * known + next] =
            static_cast<std::uint16_t>(bits | (known < 4 && plane.known == 4 ? zfp_tables::ends : 0) |
                                       zfp_tables::windows * plane.known | plane.length << zfp_tables::length);
    }
  }
  return tables;
}

/// Exchanges the bits in `Mask` with those `Distance` bits above.
template <unsigned Distance, std::uint32_t Mask>
__device__ std::uint32_t zfp_exchange(std::uint32_t x) {
  const std::uint32_t differ = (x ^ x >> Distance) & Mask;
  return x ^ differ ^ differ << Distance;
}
/// Converts four bytes, of value i in byte i, to the eight planes of their bits, of four bits each; and back.
__device__ inline std::uint32_t zfp_planes_of(std::uint32_t bytes) {
  bytes = zfp_exchange<6, 0x00cc00cc>(zfp_exchange<12, 0x0000f0f0>(bytes));
  return zfp_exchange<1, 0x22222222>(zfp_exchange<3, 0x0a0a0a0a>(bytes));
}
__device__ inline std::uint32_t zfp_bytes_of(std::uint32_t planes) {
  planes = zfp_exchange<3, 0x0a0a0a0a>(zfp_exchange<1, 0x22222222>(planes));
  return zfp_exchange<12, 0x0000f0f0>(zfp_exchange<6, 0x00cc00cc>(planes));
}

/// Collects the bits of a block in words of 32 bits, the first ones lowest. `write(number, word)` gets the words; the
/// bits beyond the limit are zeros.
template <class Write>
struct zfp_writer {
  Write write;
  unsigned left; // bits from the current word on up to the limit
  std::uint32_t word = 0;
  unsigned filled = 0, number = 0;

  /// Adds at most 28 bits. Returns whether there is room for more.
  __device__ bool add(std::uint32_t bits, unsigned length) {
    word |= bits << filled;
    filled += length;
    if (filled < (left < 32 ? left : 32)) return true;
    flush();
    if (left == 0) return false;
    filled -= 32;
    word = bits >> (length - filled);
    return true;
  }
  /// Ends the current word.
  __device__ void flush() {
    const unsigned bits = left < 32 ? left : 32;
    write(number++, word & 0xffffffffU >> (32 - bits));
    word = 0;
    left -= bits;
  }
};

/// Encodes a block of four values in `limit` bits.
template <class T, class Write>
__device__ void zfp_encode_block(const T (&x)[4], unsigned limit, const std::uint32_t* codes, Write write) {
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
  zfp_writer<Write> out{write, limit};
  if (exponent > format::smallest) {
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

    out.word = static_cast<std::uint32_t>(2 * (exponent + format::bias) + 1);
    out.filled = format::header;
    unsigned part = 0;
    for (int lowest = format::planes - 8; lowest >= 0; lowest -= 8) {
      std::uint32_t bytes = 0;
      for (unsigned i = 0; i < 4; ++i) bytes |= static_cast<std::uint32_t>(v[i] >> lowest & 0xff) << (8 * i);
      const std::uint32_t planes = zfp_planes_of(bytes);
      SPAR_UNROLL
      for (unsigned four = 0; four < 2; ++four) {
        std::uint32_t all = 0;
        unsigned length = 0; // at most 4 * zfp_tables::longest
        SPAR_UNROLL
        for (unsigned p = 0; p < 4; ++p) {
          const std::uint32_t code = codes[part + (planes >> (28 - 16 * four - 4 * p) & 15)];
          part = code >> 16;
          all |= (code & 0xff) << length;
          length += code >> 8 & 0xff;
        }
        if (!out.add(all, length)) return;
      }
    }
  }
  while (out.left > 0) out.flush();
}

/// Decodes a block of `limit` bits. `word(number)` returns its words of 32 bits; the bits beyond the limit are zeros.
/// Any bits are valid.
template <class T, class Word>
__device__ void zfp_decode_block(unsigned limit, const std::uint16_t* codes, Word word, T (&x)[4]) {
  using format = zfp_format<T>;
  using bits = typename format::bits;
  std::uint64_t next = word(0) | static_cast<std::uint64_t>(word(1)) << 32; // bits, the first ones lowest
  if ((next & 1) == 0) {
    for (T& v : x) v = 0;
    return;
  }
  const auto exponent = static_cast<int>(next >> 1 & ((1U << (format::header - 1)) - 1));
  next >>= format::header;
  bits v[4] = {};
  unsigned part = 0, valid = 64 - format::header, words = 2;
  int left = static_cast<int>(limit - format::header); // bits up to the limit
  for (int lowest = format::planes - 8; lowest >= 0 && left > 0; lowest -= 8) {
    std::uint32_t planes = 0;
    SPAR_UNROLL
    for (unsigned four = 0; four < 2; ++four) {
      auto some = static_cast<std::uint32_t>(next);
      unsigned found[4], any = 0;
      int length = 0; // at most 4 * zfp_tables::longest
      SPAR_UNROLL
      for (unsigned p = 0; p < 4; ++p) {
        found[p] = codes[part | (some & (zfp_tables::windows - 1))];
        some >>= found[p] >> zfp_tables::length;
        length += static_cast<int>(found[p] >> zfp_tables::length);
        part = found[p] & zfp_tables::part;
        planes |= (found[p] & zfp_tables::plane) << (28 - 16 * four - 4 * p);
        any |= found[p];
      }
      // The zeros read beyond the limit are no bits of values. But if the code reached the last value only by such
      // zeros, the value at the limit has the bit.
      if (length > left && (any & zfp_tables::ends) != 0) {
        int end = 0;
        SPAR_UNROLL
        for (unsigned p = 0; p < 4; ++p) {
          end += static_cast<int>(found[p] >> zfp_tables::length);
          if (end > left && (found[p] & zfp_tables::ends) != 0)
            planes ^= (8U ^ 8U >> (end - left)) << (28 - 16 * four - 4 * p);
        }
      }
      left -= length;
      if (left <= 0) break;
      next >>= length;
      valid -= static_cast<unsigned>(length);
      if (valid < 32) {
        next |= static_cast<std::uint64_t>(word(words++)) << valid;
        valid += 32;
      }
    }
    const std::uint32_t bytes = zfp_bytes_of(planes);
    for (unsigned i = 0; i < 4; ++i) v[i] |= static_cast<bits>(bytes >> (8 * i) & 0xff) << lowest;
  }
  for (bits& b : v) b = ((b & format::kept(exponent)) ^ format::negabinary) - format::negabinary;
  const auto halved = [](bits b) { return static_cast<bits>(static_cast<typename format::integer>(b) >> 1); };
  v[1] += halved(v[3]), v[3] -= halved(v[1]);
  v[1] += v[3], v[3] = 2 * v[3] - v[1];
  v[2] += v[0], v[0] = 2 * v[0] - v[2];
  v[1] += v[2], v[2] = 2 * v[2] - v[1];
  v[3] += v[0], v[0] = 2 * v[0] - v[3];
  for (int i = 0; i < 4; ++i)
    x[i] = format::factor(exponent) * static_cast<T>(static_cast<typename format::integer>(v[i]));
}

/// Each warp processes 32 blocks, whose bits fill `limit` words of 32 bits; each lane processes a block.
struct zfp_group {
  static constexpr unsigned warps = 8, threads = warps * spar::detail::warp_size, most_bits = 128;
  static constexpr std::uint64_t values = 4 * spar::detail::warp_size;

  struct encode_memory {
    std::uint32_t codes[sizeof(zfp_tables::encode) / 4];
    std::uint32_t words[warps][most_bits];
  };
  struct decode_memory {
    std::uint16_t codes[sizeof(zfp_tables::decode) / 2];
  };

  /// Copies a table to the shared memory, where lanes can look up different codes at the same time.
  template <class Entry, std::size_t Count>
  __device__ static void share(const Entry (&from)[Count], Entry (&to)[Count]) {
    SPAR_UNROLL
    for (unsigned e = 0; e < Count; e += threads) {
      if (e + threadIdx.x < Count) to[e + threadIdx.x] = from[e + threadIdx.x];
    }
  }
  __device__ static const zfp_tables& codes() {
    static constexpr zfp_tables all = zfp_all_codes();
    return all;
  }
  __device__ static std::uint64_t of_warp() {
    return std::uint64_t{blockIdx.x} * warps + spar::detail::warp_of_thread();
  }
};

template <class T>
__global__ void __launch_bounds__(zfp_group::threads)
    zfp_encode(const T* x, std::uint64_t n, unsigned limit, std::uint32_t* out, std::uint64_t words) {
  using four = spar::detail::four<T>;
  auto& shared = spar::detail::block_memory<zfp_group::encode_memory>();
  const unsigned lane = spar::detail::lane_of_thread();
  const std::uint64_t group = zfp_group::of_warp(), first = group * zfp_group::values + 4 * lane;
  four v{};
  if (first < n) {
    const std::uint64_t left = n - first;
    if (left >= 4 && spar::detail::is_aligned_for<four>(x)) {
      v = *reinterpret_cast<const four*>(x + first);
    } else { // the last block repeats values, as libzfp does
      v.value[0] = x[first];
      v.value[1] = left > 1 ? x[first + 1] : v.value[0];
      v.value[2] = left > 2 ? x[first + 2] : v.value[1];
      v.value[3] = left > 3 ? x[first + 3] : v.value[0];
    }
  }
  zfp_group::share(zfp_group::codes().encode, shared.codes);
  std::uint32_t* const of_warp = shared.words[spar::detail::warp_of_thread()];
  const bool whole = limit % 32 == 0; // else the words of neighbouring lanes overlap
  if (!whole) {
    for (unsigned w = lane; w < limit; w += spar::detail::warp_size) of_warp[w] = 0;
  }
  __syncthreads();
  const unsigned at = lane * limit, shift = at % 32;
  std::uint32_t* const to = out + group * limit;
  if (first < n) {
    zfp_encode_block(v.value, limit, shared.codes, [&](unsigned number, std::uint32_t word) {
      if (whole) {
        to[at / 32 + number] = word;
        return;
      }
      const std::uint64_t shifted = static_cast<std::uint64_t>(word) << shift;
      atomicOr(&of_warp[at / 32 + number], static_cast<std::uint32_t>(shifted));
      if (shifted >> 32 != 0) atomicOr(&of_warp[at / 32 + number + 1], static_cast<std::uint32_t>(shifted >> 32));
    });
  }
  if (whole) {
    if (first < n && n - first <= 4 && (first / 4 + 1) * limit / 32 < words) out[words - 1] = 0;
    return;
  }
  __syncthreads();
  for (unsigned w = lane; w < limit; w += spar::detail::warp_size) {
    if (group * limit + w < words) to[w] = of_warp[w];
  }
}

template <class T>
__global__ void __launch_bounds__(zfp_group::threads)
    zfp_decode(const std::uint32_t* in, std::uint64_t words, std::uint64_t n, unsigned limit, T* x) {
  using four = spar::detail::four<T>;
  auto& shared = spar::detail::block_memory<zfp_group::decode_memory>();
  zfp_group::share(zfp_group::codes().decode, shared.codes);
  __syncthreads();
  const unsigned lane = spar::detail::lane_of_thread();
  const std::uint64_t group = zfp_group::of_warp(), first = group * zfp_group::values + 4 * lane;
  if (first >= n) return;
  const unsigned at = lane * limit, shift = at % 32;
  const std::uint64_t begin = group * limit + at / 32;
  four v;
  zfp_decode_block(
      limit, shared.codes,
      [=](unsigned number) -> std::uint32_t {
        if (32 * number >= limit) return 0;
        const std::uint64_t from = begin + number;
        std::uint32_t word = in[from];
        if (shift != 0) {
          const std::uint64_t high = from + 1 < words ? in[from + 1] : 0;
          word = static_cast<std::uint32_t>((high << 32 | word) >> shift);
        }
        return limit - 32 * number < 32 ? word & ((1U << limit % 32) - 1) : word;
      },
      v.value);
  if (n - first >= 4 && spar::detail::is_aligned_for<four>(x))
    reinterpret_cast<four*>(x)[first / 4] = v;
  else
    spar::detail::store_some(x + first, v, n - first);
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
                       sizeof(group::encode_memory), stream, x, n, bits, out, zfp_words(n, bits));
}
/// Starts a kernel that decodes n values.
template <class T>
void start_zfp_decode(const std::uint32_t* in, std::uint64_t n, unsigned bits, T* x, cudaStream_t stream) {
  using group = detail::zfp_group;
  if (n == 0) return;
  spar::detail::launch(detail::zfp_decode<T>, spar::detail::tiles_of(n, group::warps * group::values), group::threads,
                       sizeof(group::decode_memory), stream, in, zfp_words(n, bits), n, bits, x);
}

} // namespace spar::inline v0_1::kernel
