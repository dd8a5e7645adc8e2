// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Searches and checks ascending indices in device memory, and counts the magnitudes that reach probes (Ok-Topk, section
// 3.1.3). The device's versions of `kernel::lower_bound`, `kernel::first_bad_index` and `threshold_search::count`.
#pragma once

#include <spar/core/element.hpp>
#include <spar/cuda/kernel/block.cuh>
#include <spar/cuda/kernel/language.cuh>
#include <spar/cuda/kernel/rows.cuh>
#include <spar/cuda/kernel/tiles.cuh>
#include <spar/storage/kernel/magnitude.hpp>

#include <algorithm>
#include <cstdint>

namespace spar::inline v0_1::kernel {

/// Up to 31 magnitudes in ascending order; neighbours may be equal.
template <ranked T>
struct magnitude_probes {
  magnitude<T> probe[31];
  unsigned count;
};

namespace detail {

/// Returns the first position in [low, high) whose index is at least `bound`, or `high` if there is none. The indices
/// ascend.
template <class Index>
__device__ std::uint64_t find_bound(const Index* indices, std::uint64_t low, std::uint64_t high, std::uint64_t bound) {
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (indices[middle] < bound)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

inline constexpr unsigned bound_threads = 128; // of a block of `find_bounds`; each thread searches for one bound

template <class Index>
__global__ void __launch_bounds__(bound_threads)
    find_bounds(const Index* indices, std::uint64_t count, const std::uint64_t* bounds, std::uint64_t bound_count,
                std::uint64_t* positions) {
  const std::uint64_t b = std::uint64_t{blockIdx.x} * bound_threads + threadIdx.x;
  if (b < bound_count) positions[b] = find_bound(indices, 0, count, bounds[b]);
}

template <class Index>
__global__ void __launch_bounds__(spar::detail::row_tile::threads)
    check_indices(const Index* indices, std::uint64_t count, std::uint64_t begin, std::uint64_t end,
                  std::uint32_t* bad) {
  constexpr unsigned rows = spar::detail::row_tile::rows;
  Index index[rows], before[rows];
  SPAR_UNROLL
  for (unsigned row = 0; row < rows; ++row) {
    const std::uint64_t e = spar::detail::row_position(row, count);
    index[row] = indices[e];
    before[row] = indices[e == 0 ? 0 : e - 1];
  }
  bool any = false;
  SPAR_UNROLL
  for (unsigned row = 0; row < rows; ++row) {
    const bool ascends = before[row] < index[row] || spar::detail::row_position(row, count) == 0;
    any = any || !ascends || index[row] < begin || index[row] >= end;
  }
  if (any) *bad = 1; // all threads write the same value
}

/// The blocks of `count_reached`. Each block counts the values of every `gridDim.x`-th tile of rows.
struct probe_grid {
  static constexpr unsigned threads = spar::detail::row_tile::threads, rows = spar::detail::row_tile::rows;
  static constexpr unsigned warps = threads / spar::detail::warp_size;
  static constexpr unsigned probes = 31, bins = probes + 1;
  static constexpr std::uint64_t values = spar::detail::row_tile::values, most = 2048;
  static constexpr unsigned words = bins + 1; // the counts of all blocks, and the number of blocks that have counted
  static std::uint64_t blocks(std::uint64_t n) { return std::min(spar::detail::tiles_of(n, values), most); }

  template <class T>
  struct memory {
    magnitude<T> probe[probes];
    std::uint32_t reached[warps][bins]; // a block counts fewer than 2^32 values, as n is less than 2^43
    bool is_last;
  };
};

template <class T>
__global__ void __launch_bounds__(probe_grid::threads)
    count_reached(const T* values, std::uint64_t n, magnitude_probes<T> probes, std::uint64_t* reached,
                  unsigned long long* words) {
  using grid = probe_grid;
  static_assert(grid::warps * grid::bins == grid::threads);
  auto& shared = spar::detail::block_memory<grid::memory<T>>();
  constexpr auto unreached = static_cast<magnitude<T>>(-1); // almost: the largest magnitude may be this one
  const unsigned thread = threadIdx.x, warp = spar::detail::warp_of_thread();
  if (thread < grid::probes) shared.probe[thread] = thread < probes.count ? probes.probe[thread] : unreached;
  shared.reached[thread / grid::bins][thread % grid::bins] = 0;
  __syncthreads();
  for (std::uint64_t tile = blockIdx.x; tile * grid::values < n; tile += gridDim.x) {
    const std::uint64_t first = tile * grid::values + thread;
    T value[grid::rows];
    SPAR_UNROLL
    for (unsigned row = 0; row < grid::rows; ++row) {
      const std::uint64_t at = first + row * grid::threads;
      value[row] = at < n ? values[at] : T{};
    }
    SPAR_UNROLL
    for (unsigned row = 0; row < grid::rows; ++row) {
      const magnitude<T> m = magnitude_of(value[row]);
      unsigned below = 0; // probes that the value reaches
      SPAR_UNROLL
      for (unsigned step = grid::bins / 2; step > 0; step /= 2) {
        const unsigned next = below + step - 1;
        if (shared.probe[next] <= m) below += step;
      }
      below = below < probes.count ? below : probes.count;
      if (first + row * grid::threads < n) atomicAdd(&shared.reached[warp][below], 1U);
    }
  }
  __syncthreads();
  if (thread < grid::bins) {
    unsigned long long total = 0;
    for (unsigned w = 0; w < grid::warps; ++w) total += shared.reached[w][thread];
    if (total > 0) atomicAdd(&words[thread], total);
  }
  __threadfence(); // the last block must see these counts
  __syncthreads();
  if (thread == 0) shared.is_last = atomicAdd(&words[grid::bins], 1ULL) + 1 == gridDim.x;
  __syncthreads();
  if (!shared.is_last || thread >= grid::words) return;
  __threadfence();                                  // the counts must not be read before the ticket
  volatile unsigned long long& all = words[thread]; // other blocks have changed it
  if (thread < grid::bins) reached[thread] = all;
  all = 0;
}

} // namespace detail

/// Starts a kernel that sets positions[b] to the number of the `count` ascending indices below bounds[b], for b <
/// bound_count. The bounds may be in any order and may exceed the largest Index. All pointers point to memory that the
/// device can access.
template <index_type Index>
void start_find_bounds(const Index* indices, std::uint64_t count, const std::uint64_t* bounds,
                       std::uint64_t bound_count, std::uint64_t* positions, cudaStream_t stream) {
  if (bound_count == 0) return;
  spar::detail::launch(detail::find_bounds<Index>, spar::detail::tiles_of(bound_count, detail::bound_threads),
                       detail::bound_threads, 0, stream, indices, count, bounds, bound_count, positions);
}

/// Starts a kernel that sets `*bad` to 1 unless the `count` indices ascend strictly and lie in [begin, end), and
/// otherwise leaves `*bad` as it is. Both pointers point to memory that the device can access.
template <index_type Index>
void start_check_indices(const Index* indices, std::uint64_t count, std::uint64_t begin, std::uint64_t end,
                         std::uint32_t* bad, cudaStream_t stream) {
  spar::detail::launch_rows(detail::check_indices<Index>, count, stream, indices, count, begin, end, bad);
}

/// The number of words of device memory that `start_count_reached` needs.
inline constexpr std::uint64_t count_words = detail::probe_grid::words;

/// Starts a kernel that sets reached[j] to the number of values whose magnitude is at least that of exactly j of the
/// probes, for all j from 0 to 31. The `words` must be zero, and are zero again afterwards. All pointers point to
/// memory that the device can access.
template <ranked T>
void start_count_reached(const T* values, std::uint64_t n, magnitude_probes<T> probes, std::uint64_t* reached,
                         std::uint64_t* words, cudaStream_t stream) {
  using grid = detail::probe_grid;
  spar::detail::launch(detail::count_reached<T>, grid::blocks(n), grid::threads, sizeof(grid::memory<T>), stream,
                       values, n, probes, reached, reinterpret_cast<unsigned long long*>(words));
}

} // namespace spar::inline v0_1::kernel
