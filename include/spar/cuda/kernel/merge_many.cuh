// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Merges many coordinate streams of one index range in device memory, as an owner does in a split phase (SparCML,
// section 5.3.2). The device's version of `kernel::merge_many`.
#pragma once

#include <spar/core/element.hpp>
#include <spar/core/op.hpp>
#include <spar/cuda/kernel/block.cuh>
#include <spar/cuda/kernel/language.cuh>
#include <spar/cuda/kernel/merge.cuh>
#include <spar/cuda/kernel/search.cuh>
#include <spar/cuda/kernel/tiles.cuh>

#include <cstdint>

namespace spar::inline v0_1::kernel {

namespace detail {

/// A window of consecutive indices, whose sums fit into the shared memory of a block.
template <class T>
struct merge_window_of {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "the device merges values of four or eight bytes");
  static constexpr unsigned threads = 256, warps = threads / spar::detail::warp_size;
  static constexpr unsigned indices = 32768 / sizeof(T);
  static constexpr unsigned words = indices / 32;
  static_assert(words <= threads);
  static constexpr unsigned at_once = 6; // blocks for whose shared memory a multiprocessor has room

  struct memory {
    T sum[indices];
    std::uint32_t seen[words];   // bit i: whether there is a sum at index 32 w + i of the window
    std::uint32_t before[words]; // sums before those of a word
    spar::detail::block_sum<threads> sums;
    spar::detail::tiles::block_state state;
  };
};

/// A range of indices that a kernel gets as it is, or finds in device memory, its begin and its end.
struct merged_range {
  std::uint64_t begin, end;
};
__device__ inline merged_range range_in(const merged_range& range) { return range; }
__device__ inline merged_range range_in(const std::uint64_t* range) { return {range[0], range[1]}; }

/// Writes to `bounds[w * parts + p]` the number of entries of part p below window w. The first window begins with the
/// first entries, and the last one ends after all. So each entry is between the bounds of some window, also if the
/// entries are in a wrong order, and so the bounds as well.
template <class T, class Index, class Range>
__global__ void __launch_bounds__(merge_window_of<T>::threads)
    find_windows(const device_coo<T, Index>* parts, std::uint64_t count, Range range, std::uint64_t* bounds) {
  using window = merge_window_of<T>;
  const auto [begin, end] = range_in(range);
  const std::uint64_t windows = spar::detail::tiles_of(end - begin, window::indices);
  const std::uint64_t number = std::uint64_t{blockIdx.x} * window::threads + threadIdx.x;
  if (number >= (windows + 1) * count) return;
  const device_coo<T, Index> part = parts[number % count];
  const std::uint64_t w = number / count;
  std::uint64_t low = 0, high = part.count;
  if (w == 0) high = 0;
  if (w == windows) low = part.count; // the end of the last window may be beyond the largest number
  bounds[number] = find_bound(part.indices, low, high, begin + w * window::indices);
}

/// Each block merges the entries of a window, if there is one for it. It checks them on the way, and leaves out those
/// that are wrong.
template <class T, class Index, class Op, class Range>
__global__ void __launch_bounds__(merge_window_of<T>::threads, merge_window_of<T>::at_once)
    merge_many(const device_coo<T, Index>* parts, std::uint64_t count, Range range, const std::uint64_t* bounds,
               Index* out_i, T* out_v, Op op, std::uint64_t* merged, std::uint64_t* wrong, std::uint64_t* words) {
  using window = merge_window_of<T>;
  auto& shared = spar::detail::block_memory<typename window::memory>();
  const spar::detail::tiles all(words);
  const auto [begin, end] = range_in(range);
  const std::uint64_t number = all.take(shared.state);
  const std::uint64_t first = begin + number * window::indices;
  if (number > 0 && first >= end) return;
  const bool is_last = end - first <= window::indices;
  const unsigned width = is_last ? static_cast<unsigned>(end - first) : window::indices;
  const unsigned thread = threadIdx.x, lane = spar::detail::lane_of_thread();

  if (thread < window::words) shared.seen[thread] = 0;
  for (std::uint64_t p = 0; p < count; ++p) { // in the order of ranks
    __syncthreads();
    const device_coo<T, Index> part = parts[p];
    const std::uint64_t to = bounds[(number + 1) * count + p];
    for (std::uint64_t e = bounds[number * count + p] + thread; e < to; e += window::threads) {
      const Index index = part.indices[e];
      const std::uint64_t in_window = index - first; // a huge number if the index is below
      if (in_window >= width || (e > 0 && part.indices[e - 1] >= index)) {
        *wrong = 1; // all threads write the same value
        continue;
      }
      const auto at = static_cast<unsigned>(in_window);
      const std::uint32_t bit = 1U << at % 32;
      // Of the threads in this loop, only this one changes the bit, because indices of a part that ascend differ.
      const bool has_sum = (atomicOr(&shared.seen[at / 32], bit) & bit) != 0;
      shared.sum[at] = has_sum ? op(shared.sum[at], part.values[e]) : part.values[e];
    }
  }
  __syncthreads();

  std::uint32_t total = 0;
  const bool counts = thread < window::words;
  const auto mine = counts ? static_cast<std::uint32_t>(__popc(shared.seen[thread])) : 0U;
  const std::uint32_t before = shared.sums.exclusive(mine, total);
  if (counts) shared.before[thread] = before;
  const std::uint64_t base = all.outputs_before(number, total, shared.state); // has a barrier
  for (unsigned w = spar::detail::warp_of_thread(); w < window::words; w += window::warps) {
    const std::uint32_t seen = shared.seen[w];
    if ((seen >> lane & 1U) == 0) continue;
    const std::uint64_t to = base + shared.before[w] + static_cast<std::uint32_t>(__popc(seen & ((1U << lane) - 1)));
    out_i[to] = static_cast<Index>(first + w * 32 + lane);
    out_v[to] = shared.sum[w * 32 + lane];
  }
  if (is_last && thread == 0) *merged = base + total;
}

} // namespace detail

/// The number of words of device memory that `start_merge_many` needs for `count` streams of `range` indices.
template <element T>
std::uint64_t merge_many_words(std::uint64_t count, std::uint64_t range) {
  const std::uint64_t windows = spar::detail::tiles_of(range, detail::merge_window_of<T>::indices);
  return spar::detail::tiles::words(windows) + (windows + 1) * count;
}

namespace detail {

/// Starts the kernels for a range with at most `most` indices.
template <class T, class Index, class Op, class Range>
void start_merge_range(const device_coo<T, Index>* parts, std::uint64_t count, Range range, std::uint64_t most,
                       Index* out_i, T* out_v, Op op, std::uint64_t* merged, std::uint64_t* wrong, std::uint64_t* words,
                       cudaStream_t stream) {
  using window = merge_window_of<T>;
  const std::uint64_t windows = spar::detail::tiles_of(most, window::indices);
  std::uint64_t* const bounds = words + spar::detail::tiles::words(windows);
  spar::detail::clear(words, spar::detail::tiles::words(windows) * sizeof(std::uint64_t), stream);
  if (count > 0) {
    spar::detail::launch(find_windows<T, Index, Range>, spar::detail::tiles_of((windows + 1) * count, window::threads),
                         window::threads, 0, stream, parts, count, range, bounds);
  }
  spar::detail::launch(merge_many<T, Index, Op, Range>, windows, window::threads, sizeof(typename window::memory),
                       stream, parts, count, range, bounds, out_i, out_v, op, merged, wrong, words);
}

} // namespace detail

/// Starts kernels that merge `count` streams: an index that is in several gets their values folded by `op` in the order
/// of the streams. `parts` is an array in device memory. The output must have room for all entries, or for end - begin
/// if that is less, and must not overlap the streams. Sets `*merged` to the number of entries written. If the indices
/// of a stream do not ascend strictly in [begin, end), sets `*wrong` to 1, and the entries written are of no use;
/// otherwise leaves `*wrong` as it is. The bits are those of the host.
template <element T, index_type Index, reduction<T> Op>
void start_merge_many(const device_coo<T, Index>* parts, std::uint64_t count, std::uint64_t begin, std::uint64_t end,
                      Index* out_i, T* out_v, Op op, std::uint64_t* merged, std::uint64_t* wrong, std::uint64_t* words,
                      cudaStream_t stream) {
  detail::start_merge_range(parts, count, detail::merged_range{begin, end}, end - begin, out_i, out_v, op, merged,
                            wrong, words, stream);
}

/// The same for a range whose begin and end are two words in device memory, with at most `most` indices; `words` are
/// those of a range of this length.
template <element T, index_type Index, reduction<T> Op>
void start_merge_many_in(const std::uint64_t* range, std::uint64_t most, const device_coo<T, Index>* parts,
                         std::uint64_t count, Index* out_i, T* out_v, Op op, std::uint64_t* merged,
                         std::uint64_t* wrong, std::uint64_t* words, cudaStream_t stream) {
  detail::start_merge_range(parts, count, range, most, out_i, out_v, op, merged, wrong, words, stream);
}

} // namespace spar::inline v0_1::kernel
