// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Finds the k-th largest magnitude of a vector in device memory, exactly and without a wait of the host. The device's
// version of `kernel::largest`.
#pragma once

#include <spar/core/element.hpp>
#include <spar/cuda/kernel/block.cuh>
#include <spar/cuda/kernel/language.cuh>
#include <spar/cuda/kernel/marked.cuh>
#include <spar/cuda/kernel/tiles.cuh>
#include <spar/storage/kernel/largest.hpp>
#include <spar/storage/kernel/magnitude.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace spar::kernel {

namespace detail {

inline constexpr unsigned digit_bits = 8, radix = 1U << digit_bits;

/// The state of a search for the k-th largest magnitude, digit by digit from the most significant one. Zero at the
/// start of the search.
template <class T>
struct digit_search {
  unsigned long long histogram[radix]; // of the values whose upper digits are `known`
  unsigned long long finished;         // blocks that have added to the histogram
  std::uint64_t above;                 // values whose upper digits are above `known`
  magnitude<T> known, upper;           // the digits found so far, and their mask
};

/// The values that a search examines: the candidates if they contain the `wanted` largest values, otherwise all values.
template <class T>
struct searched_values {
  const T* all;
  std::uint64_t n;
  const T* candidates = nullptr;        // null if there are none
  const std::uint64_t* count = nullptr; // of the candidates; more than `room` if some had no room
  std::uint64_t room = 0;

  __device__ bool by_candidates(std::uint64_t wanted) const {
    return candidates != nullptr && *count <= room && *count >= wanted;
  }
};

/// The memory of a search, in device memory: this header, the sample, and the candidates.
template <class T>
struct largest_memory {
  digit_search<T> in_sample, in_values;
  cut<T> guess;
  std::uint64_t count; // of the candidates
};

struct digit_grid {
  static constexpr unsigned threads = radix;
  static constexpr std::uint64_t values = 16 * threads, most = 2048; // values of a block, or more
  static std::uint64_t blocks(std::uint64_t n) { return std::min(spar::detail::tiles_of(n, values), most); }

  struct memory {
    unsigned histogram[radix]; // of at most 2^42 values, a block counts fewer than 2^32
    unsigned long long whole[radix];
    bool is_last;
  };
  static_assert((std::uint64_t{1} << 42) / most <= std::uint64_t{1} << 31);
};

/// Writes the value at a pseudo-random position of each part to the sample.
template <class T>
__global__ void __launch_bounds__(digit_grid::threads)
    take_sample(const T* x, std::uint64_t parts, std::uint64_t length, T* sample) {
  const std::uint64_t part = std::uint64_t{blockIdx.x} * digit_grid::threads + threadIdx.x;
  if (part < parts) sample[part] = x[part * length + scatter_of(part, length)];
}

template <class T>
struct candidates_memory {
  marked_values<T> marked[marking_tile::warps];
  spar::detail::block_sum<marking_tile::threads> sums;
  std::uint64_t before;
};

/// Copies the values that reach the threshold of `guess` to `out`, in any order, and counts them.
template <class T>
__global__ void __launch_bounds__(marking_tile::threads)
    copy_candidates(const T* x, std::uint64_t n, unsigned rows, const cut<T>* guess, T* out, std::uint64_t room,
                    std::uint64_t* count) {
  auto& shared = spar::detail::block_memory<candidates_memory<T>>();
  auto& marked = shared.marked[spar::detail::warp_of_thread()];
  const marking_part part(n, blockIdx.x, rows);
  const magnitude<T> threshold = guess->threshold;
  const std::uint32_t found = marked.find(part, x, [&](T value) { return magnitude_of(value) >= threshold; });
  std::uint32_t total = 0;
  std::uint64_t to = shared.sums.exclusive_of_warps(found, total);
  if (threadIdx.x == 0) {
    const auto all = reinterpret_cast<unsigned long long*>(count);
    shared.before = atomicAdd(all, static_cast<unsigned long long>(total));
  }
  __syncthreads();
  to += shared.before;
  const auto read_again = [&](unsigned at) { return x[part.first + at]; };
  marked.for_each(part, found, read_again, [&](bool has, unsigned rank, unsigned, T value, bool) {
    if (has && to + rank < room) out[to + rank] = value;
  });
}

/// Finds one digit of the k-th largest magnitude: counts the values by the digit at `shift`; the last block to end
/// chooses the digit. After the last digit, writes the cut.
template <class T>
__global__ void __launch_bounds__(digit_grid::threads)
    find_digit(searched_values<T> values, std::uint64_t k, unsigned shift, digit_search<T>* search, cut<T>* result) {
  using bits = magnitude<T>;
  auto& shared = spar::detail::block_memory<digit_grid::memory>();
  const unsigned thread = threadIdx.x;
  const bool few = values.by_candidates(k);
  const T* const x = few ? values.candidates : values.all;
  const std::uint64_t n = few ? *values.count : values.n;
  const bits known = search->known, upper = search->upper;
  shared.histogram[thread] = 0;
  __syncthreads();
  const std::uint64_t stride = std::uint64_t{gridDim.x} * digit_grid::threads;
  for (std::uint64_t at = std::uint64_t{blockIdx.x} * digit_grid::threads + thread; at < n; at += stride) {
    const bits m = magnitude_of(x[at]);
    if ((m & upper) == known) atomicAdd(&shared.histogram[static_cast<unsigned>(m >> shift) & (radix - 1)], 1U);
  }
  __syncthreads();
  if (shared.histogram[thread] > 0)
    atomicAdd(&search->histogram[thread], static_cast<unsigned long long>(shared.histogram[thread]));
  __threadfence(); // the last block must see these counts
  __syncthreads();
  if (thread == 0) shared.is_last = atomicAdd(&search->finished, 1ULL) + 1 == gridDim.x;
  __syncthreads();
  if (!shared.is_last) return;
  __threadfence(); // the counts must not be read before the ticket

  // Volatile: other blocks have changed the counts. The next launch begins with zeros again.
  volatile unsigned long long& mine = search->histogram[thread];
  shared.whole[thread] = mine;
  mine = 0;
  __syncthreads();
  if (thread != 0) return;
  search->finished = 0;
  std::uint64_t above = search->above;
  unsigned digit = radix - 1;
  for (; digit > 0 && above + shared.whole[digit] < k; --digit) above += shared.whole[digit];
  const bits found = static_cast<bits>(known | static_cast<bits>(static_cast<bits>(digit) << shift));
  search->above = above;
  search->known = found;
  search->upper = static_cast<bits>(static_cast<bits>(-1) << shift);
  if (shift > 0) return;
  if (found == 0) // fewer than k nonzeros
    *result = {1, above, above, above};
  else
    *result = {found, k, k - above, shared.whole[digit]};
}

template <class T>
void start_search(const searched_values<T>& values, std::uint64_t k, digit_search<T>* search, cut<T>* result,
                  cudaStream_t stream) {
  for (unsigned shift = 8 * sizeof(T); shift > 0;) {
    shift -= digit_bits;
    spar::detail::launch(find_digit<T>, digit_grid::blocks(values.n), digit_grid::threads, sizeof(digit_grid::memory),
                         stream, values, k, shift, search, result);
  }
}

/// Writes the cut of a search for nothing.
template <class T>
__global__ void empty_cut(cut<T>* result) {
  if (threadIdx.x == 0) *result = {greatest_magnitude<T>, 0, 0, 0};
}

} // namespace detail

/// The bytes of device memory, aligned for any type, that `start_largest` needs for the k largest of n values.
template <ranked T>
std::size_t largest_bytes(std::uint64_t n, std::uint64_t k) {
  const detail::sample_plan sample(n, std::min(k, n));
  return sizeof(detail::largest_memory<T>) + (sample.useful ? (sample.parts + sample.room) * sizeof(T) : 0);
}

/// Starts kernels that write the cut of the `k` largest entries of `x`, or of all nonzeros if there are fewer, to
/// `*result`. All pointers point to device memory. The search begins with a sample, like that of the host, and reads
/// `x` once, unless too few or too many values reach the sample's threshold; then it reads `x` once more for each byte
/// of T.
template <ranked T>
void start_largest(const T* x, std::uint64_t n, std::uint64_t k, cut<T>* result, void* memory, cudaStream_t stream) {
  const std::uint64_t wanted = std::min(k, n);
  if (wanted == 0) return spar::detail::launch(detail::empty_cut<T>, 1, spar::detail::warp_size, 0, stream, result);
  auto& work = *static_cast<detail::largest_memory<T>*>(memory);
  spar::detail::clear(&work, sizeof work, stream);
  detail::searched_values<T> values{x, n};
  if (const detail::sample_plan plan(n, wanted); plan.useful) {
    T* const sample = reinterpret_cast<T*>(&work + 1);
    T* const candidates = sample + plan.parts;
    spar::detail::launch(detail::take_sample<T>, spar::detail::tiles_of(plan.parts, detail::digit_grid::threads),
                         detail::digit_grid::threads, 0, stream, x, plan.parts, plan.length, sample);
    detail::start_search({sample, plan.parts}, plan.rank, &work.in_sample, &work.guess, stream);
    spar::detail::launch(detail::copy_candidates<T>, detail::marking_tile::count(n), detail::marking_tile::threads,
                         sizeof(detail::candidates_memory<T>), stream, x, n, detail::marking_tile::rows_of(n),
                         &work.guess, candidates, plan.room, &work.count);
    values = {x, n, candidates, &work.count, plan.room};
  }
  detail::start_search(values, wanted, &work.in_values, result, stream);
}

} // namespace spar::kernel
