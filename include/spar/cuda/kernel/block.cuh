// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Primitives for the threads of a block. All threads of the block must call them, and the number of threads must be a
// multiple of the warp size.
#pragma once

#include <spar/cuda/kernel/language.cuh>

#include <cstdint>

namespace spar::inline v0_1::detail {

__device__ inline unsigned lane_of_thread() { return threadIdx.x % warp_size; }
__device__ inline unsigned warp_of_thread() { return threadIdx.x / warp_size; }

/// The sum of `mine` over the lanes up to and including this one.
template <class Count>
__device__ Count warp_inclusive_sum(Count mine) {
  const unsigned lane = lane_of_thread();
  for (unsigned distance = 1; distance < warp_size; distance *= 2) {
    const Count below = __shfl_up_sync(whole_warp, mine, distance);
    if (lane >= distance) mine += below;
  }
  return mine;
}

/// The sum of `mine` over all lanes.
template <class Count>
__device__ Count warp_sum(Count mine) {
  for (unsigned distance = warp_size / 2; distance > 0; distance /= 2)
    mine += __shfl_xor_sync(whole_warp, mine, distance);
  return mine;
}

/// The largest `mine` of all lanes.
template <class Number>
__device__ Number warp_maximum(Number mine) {
  for (unsigned distance = warp_size / 2; distance > 0; distance /= 2) {
    const Number other = __shfl_xor_sync(whole_warp, mine, distance);
    if (other > mine) mine = other;
  }
  return mine;
}

/// Returns the first position in [low, high) for which `before` does not hold, or `high` if there is none; `before`
/// holds for all positions in front of one for which it holds. Called by a whole warp, for comparisons that take long:
/// the lanes compare the last positions of 32 parts of the range at the same time.
template <class Before>
__device__ std::uint64_t partition_point_by_warp(std::uint64_t low, std::uint64_t high, Before before) {
  while (low < high) {
    const std::uint64_t first = low, end = high, part = (end - first - 1) / warp_size + 1;
    const auto end_of = [&](unsigned parts) { return part * parts < end - first ? first + part * parts : end; };
    const unsigned lane = lane_of_thread();
    const bool is_before = end_of(lane) < end && before(end_of(lane + 1) - 1);
    const auto whole = static_cast<unsigned>(__popc(__ballot_sync(whole_warp, is_before)));
    low = end_of(whole);
    high = low < end ? end_of(whole + 1) - 1 : end;
  }
  return low;
}

/// Sums over the threads of a block.
template <unsigned Threads>
struct block_sum {
  static_assert(Threads % warp_size == 0 && Threads / warp_size <= warp_size);

  std::uint32_t of_warp[Threads / warp_size]; // in shared memory

  /// Returns the sum of `mine` over the threads before this one, and sets `total` to the sum over all threads. A thread
  /// may use the memory of this object again only after the next barrier.
  __device__ std::uint32_t exclusive(std::uint32_t mine, std::uint32_t& total) {
    const std::uint32_t through = warp_inclusive_sum(mine);
    if (lane_of_thread() == warp_size - 1) of_warp[warp_of_thread()] = through;
    return before_warp(total) + through - mine;
  }

  /// The same for the numbers of the warps: `of_this` is the same in all lanes of a warp, and counts once.
  __device__ std::uint32_t exclusive_of_warps(std::uint32_t of_this, std::uint32_t& total) {
    if (lane_of_thread() == 0) of_warp[warp_of_thread()] = of_this;
    return before_warp(total);
  }

 private:
  __device__ std::uint32_t before_warp(std::uint32_t& total) const {
    __syncthreads();
    std::uint32_t before = 0;
    total = 0;
    for (unsigned w = 0; w < Threads / warp_size; ++w) {
      if (w < warp_of_thread()) before += of_warp[w];
      total += of_warp[w];
    }
    return before;
  }
};

} // namespace spar::inline v0_1::detail
