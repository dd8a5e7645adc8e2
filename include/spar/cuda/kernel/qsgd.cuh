// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Encodes vectors in device memory by QSGD, and decodes them. The device's version of `kernel::qsgd_codec`.
#pragma once

#include <spar/core/element.hpp>
#include <spar/core/error.hpp>
#include <spar/core/non_finite.hpp>
#include <spar/cuda/kernel/block.cuh>
#include <spar/cuda/kernel/fours.cuh>
#include <spar/cuda/kernel/language.cuh>
#include <spar/storage/codec.hpp>
#include <spar/storage/kernel/magnitude.hpp>
#include <spar/storage/kernel/qsgd.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace spar::inline v0_1::kernel {

/// The random numbers of a call in the order of a stream, whose number is in device memory: a graph of a call that is
/// launched again draws others.
struct qsgd_draws {
  const std::uint64_t* calls; ///< the number of calls before this one
  std::uint64_t seed;         ///< that of the codec
  std::uint64_t step;         ///< of the encoding in the call (see `block_coder::encode`)
};

namespace detail {

__device__ inline position_random numbers_of(const position_random& random) { return random; }
__device__ inline position_random numbers_of(const qsgd_draws& draws) {
  return {draws.seed, spar::detail::call_of_step(*draws.calls, draws.step)};
}

template <class Count>
__global__ void __launch_bounds__(spar::detail::warp_size) count_call(Count* calls) {
  if (threadIdx.x == 0) ++*calls;
}

/// Each warp encodes or decodes a bucket; each lane processes four neighbouring entries at a time, because the codes of
/// four entries fill whole bytes and share a random word.
template <int Bits>
struct device_qsgd {
  static constexpr unsigned warps = 8, threads = warps * spar::detail::warp_size;

  using codec = qsgd_codec<Bits>;
  /// The codes of four entries.
  using codes =
      std::conditional_t<Bits == 8, std::uint32_t, std::conditional_t<Bits == 4, std::uint16_t, std::uint8_t>>;

  /// The number of buckets of n entries, and of blocks that process them.
  static std::uint64_t buckets(std::uint64_t n, std::uint64_t size) {
    if (size == 0) raise<invalid_argument>({"a QSGD bucket has 0 entries; expected at least 1"});
    return n / size + (n % size != 0 ? 1 : 0);
  }
  static std::uint64_t blocks(std::uint64_t buckets) { return buckets / warps + (buckets % warps != 0 ? 1 : 0); }

  /// The bucket of this warp.
  struct bucket {
    std::uint64_t first;  // number of its first entry
    std::uint64_t count;  // 0 if the warp has no bucket
    std::uint64_t offset; // of its first byte in the code
  };
  template <class T>
  __device__ static bucket bucket_of_warp(std::uint64_t n, std::uint64_t size, std::uint64_t buckets) {
    const std::uint64_t number = std::uint64_t{blockIdx.x} * warps + spar::detail::warp_of_thread();
    const std::uint64_t first = number * size;
    const std::uint64_t count = number >= buckets ? 0 : n - first;
    return {first, count < size ? count : size, number * (sizeof(T) + codec::packed(size))};
  }

  /// Writes or reads the codes of `count` entries, at most four, at an address of any alignment.
  __device__ static void store(std::byte* to, codes word, unsigned count) {
    if (count >= 4) return spar::detail::store_word(to, word);
    SPAR_UNROLL
    for (unsigned b = 0; b < sizeof(codes); ++b) {
      if (b < codec::packed(count)) to[b] = static_cast<std::byte>(word >> (8 * b) & 0xff);
    }
  }
  __device__ static codes load(const std::byte* from, unsigned count) {
    codes word = 0;
    SPAR_UNROLL
    for (unsigned b = 0; b < sizeof(codes); ++b) {
      if (b < codec::packed(count)) word = static_cast<codes>(word | static_cast<unsigned>(from[b]) << (8 * b));
    }
    return word;
  }

  /// The code of an entry, with its 16 random bits.
  template <class Real>
  __device__ static unsigned code_of_entry(Real value, Real magnify, Real factor, std::uint32_t random) {
    // Selects at the end, because branches cost more.
    const Real limit = value > 0 ? codec::levels << 16 : -(codec::levels << 16);
    const Real scaled = spar::detail::is_finite(value) ? value * magnify * factor : limit;
    int level = (__float2int_rn(static_cast<float>(scaled)) + static_cast<int>(random)) >> 16;
    level = level < -codec::levels ? -codec::levels : level > codec::levels ? codec::levels : level;
    return spar::detail::is_nan(value) ? codec::nan_code : static_cast<unsigned>(level) & ((1U << Bits) - 1);
  }
};

/// Several rows of a bucket; a lane has four neighbouring entries of each row. They are read before any of them is
/// used, so that many bytes are on the way from memory at the same time.
template <class T>
struct qsgd_rows {
  static constexpr unsigned rows = sizeof(T) > 4 ? 4 : 8, entries = rows * 4 * spar::detail::warp_size;

  /// The number of this lane's first entry in a row.
  __device__ static unsigned position(unsigned row) {
    return 4 * (row * spar::detail::warp_size + spar::detail::lane_of_thread());
  }
  /// The number of entries from `begin` to the end of the bucket, at most those of all rows.
  __device__ static unsigned left(std::uint64_t begin, std::uint64_t count) {
    return static_cast<unsigned>(count - begin < entries ? count - begin : entries);
  }
  /// Reads what `from` contains for each four of the first `left` entries. `some(entry, count)` reads the four that
  /// begins with `entry` if it has fewer entries, or if its address is not aligned.
  template <class Four, class Some>
  __device__ static void load(const void* from, unsigned left, Four (&row)[rows], Some some) {
    const bool aligned = spar::detail::is_aligned_for<Four>(from);
    SPAR_UNROLL
    for (unsigned r = 0; r < rows; ++r) {
      row[r] = {};
      if (aligned && position(r) + 4 <= left) row[r] = static_cast<const Four*>(from)[position(r) / 4];
    }
    if (aligned && left % 4 == 0) return;
    SPAR_UNROLL
    for (unsigned r = 0; r < rows; ++r) {
      const unsigned e = position(r);
      if (e < left && !(aligned && e + 4 <= left)) row[r] = some(e, left - e);
    }
  }
};

template <int Bits, class T, class Random>
__global__ void __launch_bounds__(device_qsgd<Bits>::threads)
    qsgd_encode(const T* x, std::uint64_t n, std::uint64_t size, std::uint64_t buckets, std::byte* out, Random numbers,
                std::uint64_t position) {
  using device = device_qsgd<Bits>;
  using codec = qsgd_codec<Bits>;
  using real = typename codec::template real<T>;
  using bits = magnitude<T>;
  using rows = qsgd_rows<T>;
  const auto bucket = device::template bucket_of_warp<T>(n, size, buckets);
  x += bucket.first;
  out += bucket.offset;
  position += bucket.first;

  // The scale is the largest magnitude that is not NaN.
  const bits infinite = magnitude_of(static_cast<T>(codec::template infinity<real>));
  bits top = 0;
  spar::detail::four<T> row[rows::rows];
  const auto load = [&](std::uint64_t begin) {
    rows::load(x + begin, rows::left(begin, bucket.count), row,
               [&](unsigned e, unsigned count) { return spar::detail::load_some(x + begin + e, count); });
  };
  for (std::uint64_t begin = 0; begin < bucket.count; begin += rows::entries) {
    load(begin);
    SPAR_UNROLL
    for (const auto& four : row) {
      SPAR_UNROLL
      for (const T value : four.value) {
        const bits m = magnitude_of(value);
        if (m > top && m <= infinite) top = m;
      }
    }
  }
  top = spar::detail::warp_maximum(top);
  if (bucket.count == 0) return; // only now: all lanes take part in the operation above
  if (spar::detail::lane_of_thread() == 0) spar::detail::store_word(out, top);
  out += sizeof(T);

  const auto scale = static_cast<real>(__builtin_bit_cast(T, top));
  const real least_scale = codec::template least_scale<real>;
  const bool finite = spar::detail::is_finite(scale);
  const real magnify = !finite ? 0 : scale < least_scale ? 1 / least_scale : 1;
  const real factor = codec::factor_of(scale > 0 && finite ? scale * magnify : real(1));
  const position_random random = numbers_of(numbers);
  const auto shift = static_cast<unsigned>(position % 4 * 16); // rows consist of whole fours
  for (std::uint64_t begin = 0; begin < bucket.count; begin += rows::entries) {
    if (bucket.count > rows::entries) load(begin); // else the entries are still there
    const unsigned left = rows::left(begin, bucket.count);
    SPAR_UNROLL
    for (unsigned r = 0; r < rows::rows; ++r) {
      const unsigned e = rows::position(r);
      if (e >= left) break;
      const std::uint64_t at = (position + begin + e) / 4;
      std::uint64_t drawn = random.of_four(at);
      if (shift != 0) drawn = drawn >> shift | random.of_four(at + 1) << (64 - shift);
      unsigned codes = 0;
      SPAR_UNROLL
      for (unsigned i = 0; i < 4; ++i) {
        const auto value = static_cast<real>(row[r].value[i]);
        const auto sixteen = static_cast<std::uint32_t>(drawn >> (16 * i) & 0xffff);
        codes |= device::code_of_entry(value, magnify, factor, sixteen) << (Bits * i);
      }
      // The codes of the zeros beyond the end are zeros: a random number alone is no level.
      device::store(out + begin * Bits / 8 + e * Bits / 8, static_cast<typename device::codes>(codes), left - e);
    }
  }
}

template <int Bits, class T>
__global__ void __launch_bounds__(device_qsgd<Bits>::threads)
    qsgd_decode(const std::byte* in, std::uint64_t n, std::uint64_t size, std::uint64_t buckets, T* out) {
  using device = device_qsgd<Bits>;
  using codec = qsgd_codec<Bits>;
  using real = typename codec::template real<T>;
  using rows = qsgd_rows<T>;
  const auto bucket = device::template bucket_of_warp<T>(n, size, buckets);
  if (bucket.count == 0) return;
  in += bucket.offset;
  out += bucket.first;
  const auto scale = static_cast<real>(__builtin_bit_cast(T, spar::detail::load_word<magnitude<T>>(in)));
  in += sizeof(T);
  const bool aligned = spar::detail::is_aligned_for<spar::detail::four<T>>(out);
  for (std::uint64_t begin = 0; begin < bucket.count; begin += rows::entries) {
    const std::byte* const from = in + begin * Bits / 8;
    const unsigned left = rows::left(begin, bucket.count);
    typename device::codes codes[rows::rows];
    rows::load(from, left, codes, [&](unsigned e, unsigned count) { return device::load(from + e * Bits / 8, count); });
    SPAR_UNROLL
    for (unsigned r = 0; r < rows::rows; ++r) {
      const unsigned e = rows::position(r);
      if (e >= left) break;
      spar::detail::four<T> decoded;
      SPAR_UNROLL
      for (unsigned i = 0; i < 4; ++i) {
        const unsigned code = codes[r] >> (Bits * i) & ((1U << Bits) - 1);
        decoded.value[i] = static_cast<T>(codec::value_of(code, scale));
      }
      if (aligned && e + 4 <= left)
        *reinterpret_cast<spar::detail::four<T>*>(out + begin + e) = decoded;
      else
        spar::detail::store_some(out + begin + e, decoded, left - e);
    }
  }
}

template <int Bits, class T, class Random>
void start_qsgd_encode_by(const T* x, std::uint64_t n, std::uint64_t bucket, std::byte* out, Random numbers,
                          std::uint64_t position, cudaStream_t stream) {
  using device = device_qsgd<Bits>;
  const std::uint64_t buckets = device::buckets(n, bucket);
  spar::detail::launch(qsgd_encode<Bits, T, Random>, device::blocks(buckets), device::threads, 0, stream, x, n, bucket,
                       buckets, out, numbers, position);
}

} // namespace detail

/// Starts a kernel that encodes n values like `qsgd_codec<Bits>::encode`, with the same bytes. All pointers point to
/// device memory. Throws `invalid_argument` if `bucket` is 0.
template <int Bits, element T>
  requires is_floating<T>
void start_qsgd_encode(const T* x, std::uint64_t n, std::uint64_t bucket, std::byte* out, std::uint64_t seed,
                       std::uint64_t call, std::uint64_t position, cudaStream_t stream) {
  detail::start_qsgd_encode_by<Bits>(x, n, bucket, out, detail::position_random(seed, call), position, stream);
}
/// The same with the random numbers of a call in a stream.
template <int Bits, element T>
  requires is_floating<T>
void start_qsgd_encode(const T* x, std::uint64_t n, std::uint64_t bucket, std::byte* out, const qsgd_draws& draws,
                       std::uint64_t position, cudaStream_t stream) {
  detail::start_qsgd_encode_by<Bits>(x, n, bucket, out, draws, position, stream);
}
/// Starts a kernel that adds a call to `calls`, after the last encoding of the call.
inline void start_count_call(std::uint64_t* calls, cudaStream_t stream) {
  spar::detail::launch(detail::count_call<std::uint64_t>, 1, spar::detail::warp_size, 0, stream, calls);
}
/// Starts a kernel that decodes n values like `qsgd_codec<Bits>::decode`.
template <int Bits, element T>
  requires is_floating<T>
void start_qsgd_decode(const std::byte* in, std::uint64_t n, std::uint64_t bucket, T* out, cudaStream_t stream) {
  using device = detail::device_qsgd<Bits>;
  const std::uint64_t buckets = device::buckets(n, bucket);
  spar::detail::launch(detail::qsgd_decode<Bits, T>, device::blocks(buckets), device::threads, 0, stream, in, n, bucket,
                       buckets, out);
}

} // namespace spar::inline v0_1::kernel
