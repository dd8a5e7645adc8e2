// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Moves the k largest entries of each bucket of consecutive values out of a vector in device memory (SparCML, section
// 8.3). The device's version of `kernel::take_from_buckets`.
#pragma once

#include <spar/core/element.hpp>
#include <spar/core/error.hpp>
#include <spar/cuda/kernel/block.cuh>
#include <spar/cuda/kernel/language.cuh>
#include <spar/cuda/kernel/tiles.cuh>
#include <spar/storage/kernel/magnitude.hpp>

#include <cstdint>

namespace spar::inline v0_1::kernel {

namespace detail {

/// A tile of `take_from_buckets`: a bucket for each warp of a block.
struct buckets_tile {
  static constexpr unsigned warps = 8, threads = warps * spar::detail::warp_size;
  static constexpr unsigned digit_bits = 8, radix = 1U << digit_bits, bins_of_lane = radix / spar::detail::warp_size;

  /// A step of the search for the k-th largest magnitude of a bucket.
  struct found_digit {
    unsigned digit;
    std::uint32_t above; // values whose digit is larger
  };
  struct memory {
    std::uint32_t bins[warps][radix];
    found_digit found[warps];
    spar::detail::block_sum<threads> sums;
    spar::detail::tiles::block_state state;
  };

  static std::uint64_t count(std::uint64_t n, std::uint64_t bucket) {
    return spar::detail::tiles_of(spar::detail::tiles_of(n, bucket), warps);
  }
};

/// Which values of a bucket are taken: all above the threshold, and the first ties.
template <class T>
struct bucket_cut {
  magnitude<T> threshold;
  std::uint32_t above, ties;
};

/// Finds the k-th largest of the magnitudes of `length` values, for 0 < k <= length, digit by digit from the most
/// significant one. Called by a whole warp.
template <class T>
__device__ bucket_cut<T> cut_of_bucket(const T* x, std::uint32_t length, std::uint32_t k,
                                       std::uint32_t (&bins)[buckets_tile::radix], buckets_tile::found_digit& found) {
  using tile = buckets_tile;
  using bits = magnitude<T>;
  const unsigned lane = spar::detail::lane_of_thread();
  const unsigned largest = tile::radix - 1 - lane * tile::bins_of_lane; // of the digits of this lane, which descend
  bits digits = 0, mask = 0;
  std::uint32_t above = 0;
  for (unsigned shift = 8 * sizeof(T); shift > 0;) {
    shift -= tile::digit_bits;
    for (unsigned b = lane; b < tile::radix; b += spar::detail::warp_size) bins[b] = 0;
    __syncwarp();
    for (std::uint64_t at = lane; at < length; at += spar::detail::warp_size) {
      const bits m = magnitude_of(x[at]);
      if ((m & mask) == digits) atomicAdd(&bins[static_cast<unsigned>(m >> shift) & (tile::radix - 1)], 1U);
    }
    __syncwarp();
    std::uint32_t mine = 0;
    for (unsigned b = 0; b < tile::bins_of_lane; ++b) mine += bins[largest - b];
    std::uint32_t before = above + spar::detail::warp_inclusive_sum(mine) - mine;
    if (before < k && k - before <= mine) { // true for one lane
      unsigned digit = largest;
      while (k - before > bins[digit]) before += bins[digit--];
      found = {digit, before};
    }
    __syncwarp();
    above = found.above;
    digits = static_cast<bits>(digits | static_cast<bits>(static_cast<bits>(found.digit) << shift));
    mask = static_cast<bits>(static_cast<bits>(-1) << shift);
    __syncwarp(); // before the next step writes
  }
  return {digits, above, digits == 0 ? 0 : k - above}; // zeros are never taken
}

/// Each warp takes the entries of a bucket.
template <class T, class Index>
__global__ void __launch_bounds__(buckets_tile::threads)
    take_from_buckets(T* x, std::uint64_t n, std::uint64_t bucket, std::uint32_t k, Index* out_i, T* out_v,
                      std::uint64_t* count, std::uint64_t* words) {
  using tile = buckets_tile;
  using spar::detail::whole_warp;
  auto& shared = spar::detail::block_memory<tile::memory>();
  const spar::detail::tiles all(words);
  const std::uint64_t number = all.take(shared.state);
  const unsigned warp = spar::detail::warp_of_thread(), lane = spar::detail::lane_of_thread();
  const std::uint64_t own = number * tile::warps + warp, begin = own * bucket;
  const auto length = static_cast<std::uint32_t>(begin >= n ? 0 : n - begin < bucket ? n - begin : bucket);
  bucket_cut<T> where{};
  if (length > 0)
    where = cut_of_bucket(x + begin, length, k < length ? k : length, shared.bins[warp], shared.found[warp]);
  std::uint32_t total = 0;
  std::uint64_t to = shared.sums.exclusive_of_warps(where.above + where.ties, total);
  to += all.outputs_before(number, total, shared.state);
  std::uint32_t ties = 0; // so far
  for (std::uint64_t row = 0; row < length; row += spar::detail::warp_size) {
    const std::uint64_t at = row + lane;
    const T value = at < length ? x[begin + at] : T{};
    const magnitude<T> m = magnitude_of(value);
    const std::uint32_t below = (1U << lane) - 1;
    const std::uint32_t equal = __ballot_sync(whole_warp, where.ties > 0 && at < length && m == where.threshold);
    const bool is_tie = (equal >> lane & 1U) != 0;
    const bool first_ones = ties + static_cast<std::uint32_t>(__popc(equal & below)) < where.ties;
    const std::uint32_t taken = __ballot_sync(whole_warp, m > where.threshold || (is_tie && first_ones));
    if ((taken >> lane & 1U) != 0) {
      const std::uint64_t e = to + static_cast<std::uint32_t>(__popc(taken & below));
      out_i[e] = static_cast<Index>(begin + at);
      out_v[e] = value;
      x[begin + at] = T{};
    }
    ties += static_cast<std::uint32_t>(__popc(equal));
    to += static_cast<std::uint32_t>(__popc(taken));
  }
  if (number + 1 == gridDim.x && threadIdx.x == tile::threads - 1) *count = to; // by the last warp
}

} // namespace detail

/// The number of words of device memory that `start_take_from_buckets` needs for n values.
inline std::uint64_t bucket_words(std::uint64_t n, std::uint64_t bucket) {
  return spar::detail::tiles::words(detail::buckets_tile::count(n, bucket));
}

/// Starts a kernel that moves the `k` largest entries of each `bucket` consecutive values of `x` to the output arrays,
/// or all nonzeros of a bucket with fewer than k nonzeros, leaves zeros in `x`, and sets `*count` to their number;
/// starts nothing if k or n is 0. Entries are in ascending order of their positions; of equal magnitudes, the lowest
/// positions are taken. All pointers point to memory that the device can access. A warp has a bucket, so buckets of
/// millions of values take long. Throws `invalid_argument` if a bucket has 2^32 or more values.
template <ranked T, index_type Index>
void start_take_from_buckets(T* x, std::uint64_t n, std::uint64_t bucket, std::uint64_t k, Index* out_i, T* out_v,
                             std::uint64_t* count, std::uint64_t* words, cudaStream_t stream) {
  if (k == 0 || n == 0) return;
  if (bucket > 0xffffffff)
    raise<invalid_argument>({"buckets have ", bucket, " values; on a device, expected less than 2^32"});
  spar::detail::clear(words, bucket_words(n, bucket) * sizeof(std::uint64_t), stream);
  spar::detail::launch(detail::take_from_buckets<T, Index>, detail::buckets_tile::count(n, bucket),
                       detail::buckets_tile::threads, sizeof(detail::buckets_tile::memory), stream, x, n, bucket, k,
                       out_i, out_v, count, words);
}

} // namespace spar::inline v0_1::kernel
