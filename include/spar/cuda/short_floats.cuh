// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Encodes values in device memory in two bytes each, and decodes them. The device's version of
// storage/kernel/short_floats.hpp.
#pragma once

#include <spar/core/element.hpp>
#include <spar/cuda/language.cuh>
#include <spar/cuda/tiles.cuh>
#include <spar/storage/kernel/short_floats.hpp>

#include <cstddef>
#include <cstdint>

namespace spar::kernel {

namespace detail {

struct short_tile {
  static constexpr unsigned threads = 256, rows = 8;
  static constexpr std::uint64_t values = threads * rows;
};

/// Calls `f(position)` for the positions of this thread in the block's tile of n values. Neighbouring threads have
/// neighbouring positions.
template <class F>
__device__ void for_rows(std::uint64_t n, F f) {
  const std::uint64_t first = blockIdx.x * short_tile::values + threadIdx.x;
  SPAR_UNROLL
  for (unsigned row = 0; row < short_tile::rows; ++row) {
    const std::uint64_t at = first + row * short_tile::threads;
    if (at < n) f(at);
  }
}

template <class Code, class T>
__global__ void __launch_bounds__(short_tile::threads) encode_short(const T* x, std::uint64_t n, std::uint16_t* out) {
  for_rows(n, [&](std::uint64_t at) { out[at] = Code::encode(static_cast<float>(x[at])); });
}
template <class Code, class T>
__global__ void __launch_bounds__(short_tile::threads) decode_short(const std::uint16_t* in, std::uint64_t n, T* out) {
  for_rows(n, [&](std::uint64_t at) { out[at] = static_cast<T>(Code::decode(in[at])); });
}

} // namespace detail

/// Starts a kernel that encodes n values with `bfloat16_code` or `half_code`. All pointers point to device memory. The
/// bits are those of the host.
template <class Code, class T>
void start_encode_short(const T* x, std::uint64_t n, std::uint16_t* out, cudaStream_t stream) {
  using tile = detail::short_tile;
  spar::detail::launch(detail::encode_short<Code, T>, spar::detail::tiles_of(n, tile::values), tile::threads, 0, stream,
                       x, n, out);
}
/// Starts a kernel that decodes n values.
template <class Code, class T>
void start_decode_short(const std::uint16_t* in, std::uint64_t n, T* out, cudaStream_t stream) {
  using tile = detail::short_tile;
  spar::detail::launch(detail::decode_short<Code, T>, spar::detail::tiles_of(n, tile::values), tile::threads, 0, stream,
                       in, n, out);
}

} // namespace spar::kernel
