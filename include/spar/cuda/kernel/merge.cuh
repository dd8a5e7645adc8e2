// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Merges two coordinate streams in device memory into their sum (SparCML, section 5.1), in one pass. The device's
// version of `kernel::merge`.
#pragma once

#include <spar/core/element.hpp>
#include <spar/core/op.hpp>
#include <spar/cuda/kernel/block.cuh>
#include <spar/cuda/kernel/language.cuh>
#include <spar/cuda/kernel/tiles.cuh>

#include <cstdint>

namespace spar::inline v0_1::kernel {

/// A coordinate stream in device memory: ascending indices, and values.
template <class T, class Index>
struct device_coo {
  const Index* indices;
  const T* values;
  std::uint64_t count;
};

namespace detail {

/// A stream that a kernel gets as it is, or whose description is in device memory.
template <class T, class Index>
__device__ const device_coo<T, Index>& stream_in(const device_coo<T, Index>& from) {
  return from;
}
template <class T, class Index>
__device__ const device_coo<T, Index>& stream_in(const device_coo<T, Index>* from) {
  return *from;
}

/// Whether an entry of the left operand is one of the first `taken` entries of the merged stream. Of two equal indices,
/// the left one comes first.
template <class Index, class Count>
__device__ bool merge_takes(const Index* left, const Index* right, Count entry, Count taken) {
  return left[entry] <= right[taken - 1 - entry];
}

/// The least and the greatest number of left entries that the first `taken` entries of the merged stream may contain.
template <class Count>
struct merge_range {
  Count low, high;

  __device__ merge_range(Count left_count, Count right_count, Count taken)
      : low(taken > right_count ? taken - right_count : 0), high(taken < left_count ? taken : left_count) {}
};

/// Returns how many of the first `taken` entries of the merged stream come from the left operand ("merge path"; Green,
/// McColl and Bader 2012).
template <class Index>
__device__ unsigned merge_split(const Index* left, unsigned left_count, const Index* right, unsigned right_count,
                                unsigned taken) {
  auto [low, high] = merge_range(left_count, right_count, taken);
  while (low < high) {
    const unsigned middle = low + (high - low) / 2;
    if (merge_takes(left, right, middle, taken))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}
/// The same by a warp, for streams in device memory, where each comparison takes long: the lanes make 32 comparisons at
/// the same time. First around the left operand's share of the entries, which is about `left_part` of them, at
/// distances that double, because often both streams are spread alike; then of the last entries of 32 parts of what is
/// left.
template <class Index>
__device__ std::uint64_t merge_split_by_warp(const Index* left, std::uint64_t left_count, const Index* right,
                                             std::uint64_t right_count, std::uint64_t taken, double left_part) {
  using spar::detail::warp_size;
  const unsigned lane = spar::detail::lane_of_thread();
  auto [low, high] = merge_range(left_count, right_count, taken);
  if (low < high) {
    const std::uint64_t first = low, last = high - 1;
    const auto share = static_cast<std::uint64_t>(left_part * static_cast<double>(taken));
    const std::uint64_t middle = share < first ? first : share > last ? last : share;
    const auto entry_of = [&](unsigned l) {
      constexpr std::uint64_t least = 64, centre = warp_size / 2;
      const std::uint64_t distance = least << (l < centre ? centre - 1 - l : l - centre);
      if (l < centre) return middle - first > distance ? middle - distance : first;
      return last - middle > distance ? middle + distance : last;
    };
    const bool mine = merge_takes(left, right, entry_of(lane), taken);
    const auto takes = static_cast<unsigned>(__popc(__ballot_sync(spar::detail::whole_warp, mine)));
    if (takes > 0) low = entry_of(takes - 1) + 1;
    if (takes < warp_size) high = entry_of(takes);
  }
  const auto taken_first = [&](std::uint64_t entry) { return merge_takes(left, right, entry, taken); };
  return spar::detail::partition_point_by_warp(low, high, taken_first);
}

/// A tile of `merge`: consecutive entries of the merged stream. Each thread merges `items` of them.
template <class T, class Index>
struct merge_tile {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "the device merges values of four or eight bytes");
  // An odd number of items: in shared memory, the items of neighbouring threads are then in different banks.
  static constexpr unsigned threads = 256, items = sizeof(T) + sizeof(Index) > 8 ? 7 : 15;
  static constexpr std::uint64_t entries = threads * items;
  static constexpr unsigned blocks = 4; // of a multiprocessor, at least; without a number, ptxas uses local memory
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
__global__ void __launch_bounds__(merge_tile<T, Index>::threads, merge_tile<T, Index>::blocks)
    merge(device_coo<T, Index> left, device_coo<T, Index> right, double left_part, Index* out_i, T* out_v, Op op,
          std::uint64_t* count, std::uint64_t* words) {
  using tile = merge_tile<T, Index>;
  auto& shared = spar::detail::block_memory<typename tile::memory>();
  const spar::detail::tiles all(words);
  const std::uint64_t number = all.take(shared.state), n = left.count + right.count;
  const std::uint64_t begin = number * tile::entries;
  const std::uint64_t end = n - begin < tile::entries ? n : begin + tile::entries;
  const unsigned thread = threadIdx.x;

  // Two warps search for the ends of the tile at the same time.
  if (const unsigned warp = spar::detail::warp_of_thread(); warp < 2) {
    const std::uint64_t taken = warp == 0 ? begin : end;
    shared.split[warp] = merge_split_by_warp(left.indices, left.count, right.indices, right.count, taken, left_part);
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
  Index index[tile::items + 1];
  T value[tile::items + 1];
  SPAR_UNROLL
  for (unsigned item = 0; item < tile::items; ++item) { // reads all before it stores any
    const unsigned e = thread + item * tile::threads;
    if (e < lefts)
      index[item] = left.indices[l + e], value[item] = left.values[l + e];
    else if (e < lefts + rights)
      index[item] = right.indices[r - lefts + e], value[item] = right.values[r - lefts + e];
  }
  SPAR_UNROLL
  for (unsigned item = 0; item < tile::items; ++item) {
    const unsigned e = thread + item * tile::threads;
    if (e < lefts + rights) li[e] = index[item], lv[e] = value[item];
  }
  if (thread == 0 && has_after) ri[rights] = right.indices[r + rights], rv[rights] = right.values[r + rights];
  if (thread == 0 && has_before) shared.index[0] = left.indices[l - 1];
  __syncthreads();

  // The entries of this thread and the one after them, in the order of the merged stream.
  const unsigned from = thread * tile::items < lefts + rights ? thread * tile::items : lefts + rights;
  const unsigned own = lefts + rights - from < tile::items ? lefts + rights - from : tile::items;
  const unsigned right_end = rights + (has_after ? 1 : 0);
  unsigned i = merge_split(li, lefts, ri, rights, from);
  unsigned j = from - i, filled = 0; // the number of entries in `index`
  const bool follows = i > 0 || has_before;
  Index last = shared.index[i], next_left = li[i], next_right = ri[j]; // shared.index[i] is li[i - 1]
  SPAR_UNROLL
  for (unsigned item = 0; item <= tile::items; ++item) {
    if (i + j == lefts + right_end) break;
    const bool is_left = i < lefts && (j == right_end || next_left <= next_right);
    const unsigned at = is_left ? i : lefts + j;
    index[item] = is_left ? next_left : next_right;
    value[item] = lv[at];
    ++filled;
    if (item == tile::items) break;
    const Index next = li[at + 1];
    next_left = is_left ? next : next_left;
    next_right = is_left ? next_right : next;
    ++(is_left ? i : j);
  }
  // Of two equal indices, the left one gets the sum, and the right one is dropped.
  unsigned made = 0;
  SPAR_UNROLL
  for (unsigned item = 0; item < tile::items; ++item) {
    if (item >= own) break;
    if (index[item] != last || (item == 0 && !follows)) made |= 1U << item;
    last = index[item];
    if (item + 1 < filled && index[item + 1] == last) value[item] = op(value[item], value[item + 1]);
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
/// All pointers point to memory that the device can access. The bits are those of the host.
template <element T, index_type Index, reduction<T> Op>
void start_merge(device_coo<T, Index> left, device_coo<T, Index> right, Index* out_i, T* out_v, Op op,
                 std::uint64_t* count, std::uint64_t* words, cudaStream_t stream) {
  using tile = detail::merge_tile<T, Index>;
  const std::uint64_t n = left.count + right.count;
  const double left_part = n == 0 ? 0 : static_cast<double>(left.count) / static_cast<double>(n);
  spar::detail::clear(words, merge_words<T, Index>(n) * sizeof(std::uint64_t), stream);
  spar::detail::launch(detail::merge<T, Index, Op>, tile::count(n), tile::threads, sizeof(typename tile::memory),
                       stream, left, right, left_part, out_i, out_v, op, count, words);
}

} // namespace spar::inline v0_1::kernel
