// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The number, sum and sum of squares of the finite values of a vector in device memory. The device's version of
// `kernel::moments_of`, with sums in the same order.
#pragma once

#include <spar/cuda/kernel/language.cuh>
#include <spar/cuda/kernel/tiles.cuh>
#include <spar/storage/kernel/magnitude.hpp>
#include <spar/storage/kernel/moments.hpp>

#include <cstddef>
#include <cstdint>

namespace spar::inline v0_1::kernel {

namespace detail {

/// The blocks of `add_moments`: a thread has a lane of a block of elements. Neighbouring threads read neighbouring
/// elements, a sector of floats at a time.
struct moments_grid {
  static constexpr unsigned threads = 128, blocks_of_elements = threads / moments_lanes;
  static constexpr std::uint64_t elements = blocks_of_elements * moments_block;

  struct memory {
    moments of_lane[threads];
  };
};

template <class T>
struct values_to_add {
  const T* x;
  __device__ moments operator[](std::uint64_t at) const {
    const bool finite = is_finite_value(x[at]);
    const double value = finite ? static_cast<double>(x[at]) : 0;
    return {finite ? 1U : 0U, value, __dmul_rn(value, value)}; // no fused multiply-add, as on the host
  }
};

/// Writes the moments of each block of the n elements of `from` to `out`.
template <class Elements>
__global__ void __launch_bounds__(moments_grid::threads) add_moments(Elements from, std::uint64_t n, moments* out) {
  constexpr auto lanes = static_cast<unsigned>(moments_lanes);
  auto& shared = spar::detail::block_memory<moments_grid::memory>();
  const std::uint64_t block = std::uint64_t{blockIdx.x} * moments_grid::blocks_of_elements + threadIdx.x / lanes;
  const std::uint64_t begin = block * moments_block;
  const std::uint64_t end = begin >= n ? begin : n - begin < moments_block ? n : begin + moments_block;
  moments mine;
  constexpr unsigned at_once = 8; // that are read before any is added
  for (std::uint64_t e = begin + threadIdx.x % lanes; e < end; e += at_once * lanes) {
    moments next[at_once];
    SPAR_UNROLL
    for (unsigned i = 0; i < at_once; ++i)
      if (e + i * lanes < end) next[i] = from[e + i * lanes];
    SPAR_UNROLL
    for (unsigned i = 0; i < at_once; ++i) // beyond the end, zeros, which change no sum
      mine.count += next[i].count, mine.sum += next[i].sum, mine.squares += next[i].squares;
  }
  shared.of_lane[threadIdx.x] = mine;
  __syncthreads();
  if (threadIdx.x % lanes != 0 || begin >= end) return;
  for (unsigned l = 1; l < lanes; ++l) {
    const moments& other = shared.of_lane[threadIdx.x + l];
    mine.count += other.count, mine.sum += other.sum, mine.squares += other.squares;
  }
  out[block] = mine;
}

} // namespace detail

/// The number of `moments` in device memory that `start_moments` needs for n values.
inline std::uint64_t moments_room(std::uint64_t n) {
  std::uint64_t all = 0;
  do all += n = spar::detail::tiles_of(n, detail::moments_block);
  while (n > 1);
  return all;
}

/// Starts kernels that compute the moments of the n > 0 values of `x`. Returns where they will be, which is a part of
/// `memory`. All pointers point to device memory.
template <ranked T>
const moments* start_moments(const T* x, std::uint64_t n, moments* memory, cudaStream_t stream) {
  using grid = detail::moments_grid;
  const auto start = [&](auto elements) {
    spar::detail::launch(detail::add_moments<decltype(elements)>, spar::detail::tiles_of(n, grid::elements),
                         grid::threads, sizeof(grid::memory), stream, elements, n, memory);
    n = spar::detail::tiles_of(n, detail::moments_block);
  };
  start(detail::values_to_add<T>{x});
  while (n > 1) {
    const moments* const elements = memory;
    memory += n;
    start(elements);
  }
  return memory;
}

} // namespace spar::inline v0_1::kernel
