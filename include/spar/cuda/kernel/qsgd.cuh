// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Encodes vectors in device memory by QSGD, and decodes them. The device's version of `kernel::qsgd_codec`.
#pragma once

#include <spar/core/element.hpp>
#include <spar/core/error.hpp>
#include <spar/cuda/kernel/block.cuh>
#include <spar/cuda/kernel/language.cuh>
#include <spar/cuda/kernel/tiles.cuh>
#include <spar/storage/kernel/magnitude.hpp>
#include <spar/storage/kernel/qsgd.hpp>

#include <cstddef>
#include <cstdint>

namespace spar::kernel {

namespace detail {

/// Each warp encodes or decodes a bucket; each lane processes four neighbouring entries at a time, because the codes of
/// four entries fill whole bytes and share a random word.
template <int Bits>
struct device_qsgd {
  static constexpr unsigned warps = 8, threads = warps * spar::detail::warp_size;
  static constexpr unsigned four_bytes = 4 * Bits / 8; // bytes of the codes of four entries

  using codec = qsgd_codec<Bits>;

  /// The bucket of this warp.
  struct bucket {
    std::uint64_t first;  // number of its first entry
    std::uint64_t count;  // 0 if the warp has no bucket
    std::uint64_t offset; // of its first byte in the code
  };
  template <class T>
  __device__ static bucket bucket_of_warp(std::uint64_t n, std::uint64_t size) {
    const std::uint64_t number = std::uint64_t{blockIdx.x} * warps + spar::detail::warp_of_thread();
    const std::uint64_t first = number * size;
    const std::uint64_t count = number >= spar::detail::tiles_of(n, size) || first >= n ? 0 : n - first;
    return {first, count < size ? count : size, number * (sizeof(T) + codec::packed(size))};
  }

  /// Writes or reads the lowest `bytes` bytes of a word at an address of any alignment.
  __device__ static void store(std::byte* to, std::uint64_t word, unsigned bytes) {
    for (unsigned b = 0; b < bytes; ++b) to[b] = static_cast<std::byte>(word >> (8 * b) & 0xff);
  }
  __device__ static std::uint64_t load(const std::byte* from, unsigned bytes) {
    std::uint64_t word = 0;
    for (unsigned b = 0; b < bytes; ++b) word |= static_cast<std::uint64_t>(from[b]) << (8 * b);
    return word;
  }

  /// The code of an entry, with its 16 random bits.
  template <class Real>
  __device__ static unsigned code_of_entry(Real value, Real magnify, Real factor, std::uint32_t random) {
    if (value != value) return codec::nan_code;
    const int most = codec::levels;
    int level;
    if (codec::is_finite(value))
      level = (__float2int_rn(static_cast<float>(value * magnify * factor)) + static_cast<int>(random)) >> 16;
    else
      level = value > 0 ? most : -most;
    level = level < -most ? -most : level > most ? most : level;
    return static_cast<unsigned>(level) & ((1U << Bits) - 1);
  }
};

template <int Bits, class T>
__global__ void __launch_bounds__(device_qsgd<Bits>::threads)
    qsgd_encode(const T* x, std::uint64_t n, std::uint64_t size, std::byte* out, position_random random,
                std::uint64_t position) {
  using device = device_qsgd<Bits>;
  using codec = qsgd_codec<Bits>;
  using real = typename codec::template real<T>;
  using bits = magnitude<T>;
  constexpr real infinity = codec::template infinity<real>;
  const auto bucket = device::template bucket_of_warp<T>(n, size);
  const unsigned lane = spar::detail::lane_of_thread();
  x += bucket.first;
  out += bucket.offset;
  position += bucket.first;

  // The scale is the largest magnitude that is not NaN.
  const bits infinite = magnitude_of(static_cast<T>(infinity));
  bits top = 0;
  bool nan = false;
  for (std::uint64_t e = lane; e < bucket.count; e += spar::detail::warp_size) {
    const bits m = magnitude_of(x[e]);
    if (m > infinite)
      nan = true;
    else if (m > top)
      top = m;
  }
  nan = __ballot_sync(spar::detail::whole_warp, nan) != 0;
  top = spar::detail::warp_maximum(top);
  if (bucket.count == 0) return; // only now: all lanes take part in the operations above
  if (lane == 0) device::store(out, top, sizeof(T));
  out += sizeof(T);

  const auto scale = static_cast<real>(__builtin_bit_cast(T, top));
  const real small = codec::template small<real>;
  const real magnify = scale == infinity ? 0 : scale < small ? 1 / small : 1;
  const real factor = codec::factor_of(scale > 0 && scale < infinity ? scale * magnify : real(1));
  for (std::uint64_t e = 4 * lane; e < bucket.count; e += 4 * spar::detail::warp_size) {
    const std::uint64_t at = position + e;
    const std::uint64_t word = random.of_four(at / 4);
    const std::uint64_t next = at % 4 == 0 ? 0 : random.of_four(at / 4 + 1);
    const auto shift = static_cast<unsigned>(at % 4 * 16);
    const std::uint64_t fours = shift == 0 ? word : word >> shift | next << (64 - shift);
    std::uint64_t codes = 0;
    const auto entries = static_cast<unsigned>(bucket.count - e < 4 ? bucket.count - e : 4);
    for (unsigned i = 0; i < entries; ++i) {
      const auto value = static_cast<real>(x[e + i]);
      const auto drawn = static_cast<std::uint32_t>(fours >> (16 * i) & 0xffff);
      codes |= static_cast<std::uint64_t>(device::code_of_entry(value, magnify, factor, drawn)) << (Bits * i);
    }
    device::store(out + e * Bits / 8, codes, static_cast<unsigned>(codec::packed(entries)));
  }
}

template <int Bits, class T>
__global__ void __launch_bounds__(device_qsgd<Bits>::threads)
    qsgd_decode(const std::byte* in, std::uint64_t n, std::uint64_t size, T* out) {
  using device = device_qsgd<Bits>;
  using codec = qsgd_codec<Bits>;
  using real = typename codec::template real<T>;
  const auto bucket = device::template bucket_of_warp<T>(n, size);
  if (bucket.count == 0) return;
  in += bucket.offset;
  out += bucket.first;
  const auto stored = static_cast<magnitude<T>>(device::load(in, sizeof(T)));
  const auto scale = static_cast<real>(__builtin_bit_cast(T, stored));
  in += sizeof(T);
  for (std::uint64_t e = 4 * spar::detail::lane_of_thread(); e < bucket.count; e += 4 * spar::detail::warp_size) {
    const auto entries = static_cast<unsigned>(bucket.count - e < 4 ? bucket.count - e : 4);
    const std::uint64_t codes = device::load(in + e * Bits / 8, static_cast<unsigned>(codec::packed(entries)));
    for (unsigned i = 0; i < entries; ++i) {
      const auto code = static_cast<unsigned>(codes >> (Bits * i)) & ((1U << Bits) - 1);
      out[e + i] = static_cast<T>(codec::value_of(code, scale));
    }
  }
}

/// The number of blocks for n entries in buckets of `size`.
template <int Bits>
std::uint64_t qsgd_blocks(std::uint64_t n, std::uint64_t size) {
  if (size == 0) raise<invalid_argument>({"a QSGD bucket has 0 entries; expected at least 1"});
  return n == 0 ? 0 : spar::detail::tiles_of(spar::detail::tiles_of(n, size), device_qsgd<Bits>::warps);
}

} // namespace detail

/// Starts a kernel that encodes n values like `qsgd_codec<Bits>::encode`, with the same bytes. All pointers point to
/// device memory. Throws `invalid_argument` if `bucket` is 0.
template <int Bits, element T>
  requires is_floating<T>
void start_qsgd_encode(const T* x, std::uint64_t n, std::uint64_t bucket, std::byte* out, std::uint64_t seed,
                       std::uint64_t call, std::uint64_t position, cudaStream_t stream) {
  spar::detail::launch(detail::qsgd_encode<Bits, T>, detail::qsgd_blocks<Bits>(n, bucket),
                       detail::device_qsgd<Bits>::threads, 0, stream, x, n, bucket, out,
                       detail::position_random(seed, call), position);
}
/// Starts a kernel that decodes n values like `qsgd_codec<Bits>::decode`.
template <int Bits, element T>
  requires is_floating<T>
void start_qsgd_decode(const std::byte* in, std::uint64_t n, std::uint64_t bucket, T* out, cudaStream_t stream) {
  spar::detail::launch(detail::qsgd_decode<Bits, T>, detail::qsgd_blocks<Bits>(n, bucket),
                       detail::device_qsgd<Bits>::threads, 0, stream, in, n, bucket, out);
}

} // namespace spar::kernel
