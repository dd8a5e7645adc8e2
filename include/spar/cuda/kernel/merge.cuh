// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Merges two coordinate streams in device memory into their sum (SparCML, section 5.1), in one pass. The device's
// version of `kernel::merge`.
#pragma once

#include <spar/core/element.hpp>
#include <spar/core/op.hpp>
#include <spar/cuda/kernel/block.cuh>
#include <spar/cuda/kernel/language.cuh>
#include <spar/cuda/kernel/tiles.cuh>

#include <cstddef>
#include <cstdint>

namespace spar::kernel {

/// A coordinate stream in device memory: ascending indices, and values.
template <class T, class Index>
struct device_coo {
  const Index* indices;
  const T* values;
  std::uint64_t count;
};

namespace detail {

/// Returns how many of the first `taken` entries of the merged stream come from the left operand ("merge path"; Green,
/// McColl and Bader 2012). Of two equal indices, the left one comes first.
template <class Index>
__device__ std::uint64_t merge_split(const Index* left, std::uint64_t left_count, const Index* right,
                                     std::uint64_t right_count, std::uint64_t taken) {
  std::uint64_t low = taken > right_count ? taken - right_count : 0;
  std::uint64_t high = taken < left_count ? taken : left_count;
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (left[middle] <= right[taken - 1 - middle])
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/// A tile of `merge`: consecutive entries of the merged stream. Each thread merges `items` of them.
template <class T, class Index>
struct merge_tile {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "the device merges values of four or eight bytes");
  static constexpr unsigned threads = 256, items = 8;
  static constexpr std::uint64_t entries = threads * items;
  static_assert(items <= 32, "a thread marks its entries by the bits of a word"); // positions in a tile have 32 bits

  /// The entries of a tile, and one more on each side: the left operand's entry before the tile, which may have the
  /// index of the tile's first entry, and the right operand's entry after the tile, which may have the index of the
  /// tile's last entry.
  struct memory {
    Index index[entries + 2];
    T value[entries + 2];
    std::uint64_t split[2];
    spar::detail::block_sum<threads> sums;
    spar::detail::tiles::block_state state;
  };

  SPAR_HOST_DEVICE static constexpr std::uint64_t count(std::uint64_t n) { return spar::detail::tiles_of(n, entries); }
};

template <class T, class Index, class Op>
__global__ void __launch_bounds__(merge_tile<T, Index>::threads)
    merge(device_coo<T, Index> left, device_coo<T, Index> right, Index* out_i, T* out_v, Op op, std::uint64_t* count,
          std::uint64_t* words) {
  using tile = merge_tile<T, Index>;
  auto& shared = spar::detail::block_memory<typename tile::memory>();
  const spar::detail::tiles all(words);
  const std::uint64_t number = all.take(shared.state), n = left.count + right.count;
  const std::uint64_t begin = number * tile::entries;
  const std::uint64_t end = n - begin < tile::entries ? n : begin + tile::entries;
  const unsigned thread = threadIdx.x;

  // Two warps search for the ends of the tile at the same time.
  if (thread % spar::detail::warp_size == 0 && thread / spar::detail::warp_size < 2) {
    const std::uint64_t taken = thread == 0 ? begin : end;
    shared.split[thread != 0] = merge_split(left.indices, left.count, right.indices, right.count, taken);
  }
  __syncthreads();
  const std::uint64_t l = shared.split[0], r = begin - l;
  const auto lefts = static_cast<unsigned>(shared.split[1] - l), rights = static_cast<unsigned>(end - begin) - lefts;
  const bool has_before = l > 0, has_after = r + rights < right.count;

  // The left entries with the one before them, then the right entries with the one after them.
  Index* const li = shared.index + 1;
  T* const lv = shared.value + 1;
  Index* const ri = li + lefts;
  T* const rv = lv + lefts;
  for (unsigned e = thread; e < lefts; e += tile::threads) {
    li[e] = left.indices[l + e];
    lv[e] = left.values[l + e];
  }
  for (unsigned e = thread; e < rights + has_after; e += tile::threads) {
    ri[e] = right.indices[r + e];
    rv[e] = right.values[r + e];
  }
  if (thread == 0 && has_before) shared.index[0] = left.indices[l - 1];
  __syncthreads();

  const unsigned from = thread * tile::items < lefts + rights ? thread * tile::items : lefts + rights;
  auto i = static_cast<unsigned>(merge_split(li, lefts, ri, rights, from));
  unsigned j = from - i;
  Index index[tile::items];
  T value[tile::items];
  unsigned made = 0;
  SPAR_UNROLL
  for (unsigned item = 0; item < tile::items; ++item) {
    if (i + j == lefts + rights) break;
    if (i < lefts && (j == rights || li[i] <= ri[j])) {
      index[item] = li[i];
      value[item] = lv[i];
      if ((j < rights || has_after) && ri[j] == li[i]) value[item] = op(lv[i], rv[j]);
      made |= 1U << item;
      ++i;
    } else {
      const bool folded = (i > 0 || has_before) && shared.index[i] == ri[j]; // shared.index[i] is li[i - 1]
      index[item] = ri[j];
      value[item] = rv[j];
      if (!folded) made |= 1U << item;
      ++j;
    }
  }

  std::uint32_t total = 0;
  std::uint32_t to = shared.sums.exclusive(static_cast<std::uint32_t>(__popc(made)), total);
  // The barrier in `exclusive` ends all reads of the inputs, so the outputs can take their place; then neighbouring
  // threads write neighbouring outputs.
  SPAR_UNROLL
  for (unsigned item = 0; item < tile::items; ++item) {
    if (made >> item & 1U) {
      shared.index[to] = index[item];
      shared.value[to] = value[item];
      ++to;
    }
  }
  const std::uint64_t base = all.outputs_before(number, total, shared.state);
  for (unsigned e = thread; e < total; e += tile::threads) {
    out_i[base + e] = shared.index[e];
    out_v[base + e] = shared.value[e];
  }
  if (number + 1 == tile::count(n) && thread == 0) *count = base + total;
}

} // namespace detail

/// The number of words of device memory that `start_merge` needs for n entries of both operands together.
template <element T, index_type Index>
std::uint64_t merge_words(std::uint64_t n) {
  return spar::detail::tiles::words(detail::merge_tile<T, Index>::count(n));
}

/// Starts a kernel that merges two streams: an index that is in both gets `op(left, right)`. The output, which must
/// have room for all entries of both operands, must not overlap them. Sets `*count` to the number of entries written.
/// All pointers point to device memory. The bits are those of the host.
template <element T, index_type Index, reduction<T> Op>
void start_merge(device_coo<T, Index> left, device_coo<T, Index> right, Index* out_i, T* out_v, Op op,
                 std::uint64_t* count, std::uint64_t* words, cudaStream_t stream) {
  using tile = detail::merge_tile<T, Index>;
  spar::detail::clear(words, merge_words<T, Index>(left.count + right.count) * sizeof(std::uint64_t), stream);
  spar::detail::launch(detail::merge<T, Index, Op>, tile::count(left.count + right.count), tile::threads,
                       sizeof(typename tile::memory), stream, left, right, out_i, out_v, op, count, words);
}

} // namespace spar::kernel
