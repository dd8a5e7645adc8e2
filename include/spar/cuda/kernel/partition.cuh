// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Divides the entries of a stream or the values of a vector, in device memory, into those to keep and all others, in
// one pass. The device's versions of `selector::keep_largest`, `detail::keep_from`, `put_back_dropped` and `to_sparse`.
#pragma once

#include <spar/core/element.hpp>
#include <spar/cuda/kernel/block.cuh>
#include <spar/cuda/kernel/language.cuh>
#include <spar/cuda/kernel/merge.cuh>
#include <spar/cuda/kernel/search.cuh>
#include <spar/cuda/kernel/take.cuh>
#include <spar/cuda/kernel/tiles.cuh>
#include <spar/storage/kernel/largest.hpp>
#include <spar/storage/kernel/magnitude.hpp>

#include <cstdint>
#include <type_traits>

namespace spar::kernel {

/// Keeps the entries that a cut describes: all magnitudes above the threshold, and the first `where.ties` entries at
/// the threshold. `where.count` is not used. If `where.equal` exceeds the number of entries at the threshold, the
/// result is the same, but the kernel may take longer.
template <ranked T>
struct by_cut {
  cut<T> where;

  __device__ const cut<T>& cut_of_block() const { return where; }
};

/// Like `by_cut`, with a cut in device memory, such as that of `start_largest`.
template <ranked T>
struct by_cut_at {
  const cut<T>* where;

  __device__ const cut<T>& cut_of_block() const { return *where; }
};

/// Keeps the entries whose index is one of `count` ascending indices in device memory. Requires that the indices of the
/// entries ascend, too.
template <index_type Index>
struct listed {
  const Index* sorted;
  std::uint64_t count;
};

/// Keeps the values that differ from `neutral`, and every NaN.
template <element T>
struct differs_from {
  T neutral;
};

/// The number of words of device memory that `start_partition` needs for n entries.
inline std::uint64_t partition_words(std::uint64_t n) {
  return 2 * spar::detail::tiles::words(detail::take_tile::count(n));
}

namespace detail {

struct partition_memory {
  take_tile::memory tile;
  std::uint64_t range[2]; // the part of the list in which the indices of the tile can be
};

/// The entries of this thread in a tile, one in each row. Entries beyond the end of the stream are not `in`.
template <class T, class Index>
struct partition_rows {
  using tile = take_tile;

  device_coo<T, Index> from;
  std::uint64_t begin;  // of the indices, if `from` has none
  std::uint64_t number; // of the tile
  std::uint64_t first;  // position of this thread's entry in the first row

  __device__ std::uint64_t at(unsigned row) const { return first + row * tile::threads; }
  __device__ bool in(unsigned row) const { return at(row) < from.count; }
  __device__ Index index_at(std::uint64_t e) const {
    return from.indices == nullptr ? static_cast<Index>(begin + e) : from.indices[e];
  }
};

/// Marks the entries that `keep` describes: bit l of `found[row]` belongs to lane l's entry of the row. Reads all
/// values of the tile. `words` belongs to the tiles' ties.
template <class T, class Index, class Keep>
__device__ void mark(const partition_rows<T, Index>& mine, const Keep& keep, T (&value)[take_tile::rows],
                     std::uint32_t (&found)[take_tile::rows], partition_memory& shared, std::uint64_t* words) {
  using tile = take_tile;
  SPAR_UNROLL
  for (unsigned row = 0; row < tile::rows; ++row) value[row] = mine.in(row) ? mine.from.values[mine.at(row)] : T{};
  if constexpr (std::is_same_v<Keep, differs_from<T>>) {
    SPAR_UNROLL
    for (unsigned row = 0; row < tile::rows; ++row)
      found[row] = __ballot_sync(spar::detail::whole_warp, mine.in(row) && value[row] != keep.neutral);
  } else {
    const cut<T>& where = keep.cut_of_block();
    const magnitude<T> threshold = where.threshold;
    const std::uint64_t most_ties = where.ties;
    SPAR_UNROLL
    for (unsigned row = 0; row < tile::rows; ++row) {
      const magnitude<T> m = magnitude_of(value[row]);
      const bool stays = m > threshold || (most_ties > 0 && m == threshold);
      found[row] = __ballot_sync(spar::detail::whole_warp, mine.in(row) && stays);
    }
    if (most_ties == 0 || most_ties >= where.equal) return; // no tie or all ties
    std::uint32_t ties[tile::rows];
    SPAR_UNROLL
    for (unsigned row = 0; row < tile::rows; ++row)
      ties[row] = __ballot_sync(spar::detail::whole_warp, mine.in(row) && magnitude_of(value[row]) == threshold);
    const std::uint32_t total = count_marked(ties, shared.tile);
    const std::uint64_t before = spar::detail::tiles(words).outputs_before(mine.number, total, shared.tile.state);
    SPAR_UNROLL
    for (unsigned row = 0; row < tile::rows; ++row) {
      const bool is_tie = (ties[row] >> spar::detail::lane_of_thread() & 1U) != 0;
      const bool too_late = is_tie && before + rank_of(ties, row, shared.tile) >= most_ties;
      found[row] &= ~__ballot_sync(spar::detail::whole_warp, too_late);
    }
  }
}

/// The same for entries whose index is in a list. Reads all indices of the tile.
template <class T, class Index>
__device__ void mark(const partition_rows<T, Index>& mine, const listed<Index>& keep, Index (&index)[take_tile::rows],
                     std::uint32_t (&found)[take_tile::rows], partition_memory& shared, std::uint64_t*) {
  using tile = take_tile;
  // Two warps search for the ends of the range at the same time.
  const std::uint64_t begin = mine.number * tile::values;
  if (threadIdx.x % spar::detail::warp_size == 0 && threadIdx.x / spar::detail::warp_size < 2 &&
      begin < mine.from.count) {
    const bool is_end = threadIdx.x != 0;
    const std::uint64_t last = mine.from.count - begin < tile::values ? mine.from.count - 1 : begin + tile::values - 1;
    std::uint64_t at = find_bound(keep.sorted, 0, keep.count, mine.index_at(is_end ? last : begin));
    if (is_end && at < keep.count) ++at; // the list may have the last index
    shared.range[is_end] = at;
  }
  SPAR_UNROLL
  for (unsigned row = 0; row < tile::rows; ++row) index[row] = mine.in(row) ? mine.index_at(mine.at(row)) : Index{};
  __syncthreads();
  SPAR_UNROLL
  for (unsigned row = 0; row < tile::rows; ++row) {
    bool stays = false;
    if (mine.in(row)) {
      const std::uint64_t end = shared.range[1];
      const std::uint64_t at = find_bound(keep.sorted, shared.range[0], end, index[row]);
      stays = at < end && keep.sorted[at] == index[row];
    }
    found[row] = __ballot_sync(spar::detail::whole_warp, stays);
  }
}

/// Each block divides the entries of a tile. `words` belongs to the tiles; those of the tiles' ties follow.
template <class T, class Index, class Keep>
__global__ void __launch_bounds__(take_tile::threads)
    partition(device_coo<T, Index> from, std::uint64_t begin, Keep keep, Index* kept_i, T* kept_v, Index* other_i,
              T* other_v, std::uint64_t* kept, std::uint64_t* words) {
  using tile = take_tile;
  auto& shared = spar::detail::block_memory<partition_memory>();
  const spar::detail::tiles all(words);
  const std::uint64_t blocks = tile::count(from.count), number = all.take(shared.tile.state);
  const partition_rows<T, Index> mine{from, begin, number, number * tile::values + threadIdx.x};

  T value[tile::rows];
  Index index[tile::rows];
  std::uint32_t found[tile::rows]; // bit l: whether lane l's entry of the row stays
  constexpr bool by_index = std::is_same_v<Keep, listed<Index>>;
  if constexpr (by_index)
    mark(mine, keep, index, found, shared, words + blocks + 1);
  else
    mark(mine, keep, value, found, shared, words + blocks + 1);

  // Reads what `mark` has not read, but only of the entries that have an output.
  const unsigned lane = spar::detail::lane_of_thread();
  SPAR_UNROLL
  for (unsigned row = 0; row < tile::rows; ++row) {
    const bool used = mine.in(row) && (other_i != nullptr || (found[row] >> lane & 1U) != 0);
    if constexpr (by_index)
      value[row] = used ? from.values[mine.at(row)] : T{};
    else
      index[row] = used ? mine.index_at(mine.at(row)) : Index{};
  }
  const std::uint32_t total = count_marked(found, shared.tile);
  const std::uint64_t base = all.outputs_before(number, total, shared.tile.state); // has a barrier

  SPAR_UNROLL
  for (unsigned row = 0; row < tile::rows; ++row) {
    if (!mine.in(row)) break;
    const std::uint64_t before = base + rank_of(found, row, shared.tile); // entries before this one that stay
    if ((found[row] >> lane & 1U) != 0) {
      kept_i[before] = index[row];
      kept_v[before] = value[row];
    } else if (other_i != nullptr) {
      other_i[mine.at(row) - before] = index[row];
      other_v[mine.at(row) - before] = value[row];
    }
  }
  if (number + 1 == blocks && threadIdx.x == 0) *kept = base + total;
}

} // namespace detail

/// Starts a kernel that copies the entries of `from` that `keep` describes to `kept_i` and `kept_v`, and all others to
/// `other_i` and `other_v`, both in their old order; if `other_i` is null, the others are dropped. `keep` is a
/// `by_cut`, `by_cut_at`, `listed` or `differs_from`. If `from.indices` is null, entry e has the index `begin` + e;
/// otherwise `begin` is not used. Sets `*kept` to the number of entries kept. The outputs need room for the entries
/// that they get, and must not overlap `from`. All pointers point to device memory.
template <element T, index_type Index, class Keep>
void start_partition(device_coo<T, Index> from, std::uint64_t begin, Keep keep, Index* kept_i, T* kept_v,
                     std::type_identity_t<Index>* other_i, std::type_identity_t<T>* other_v, std::uint64_t* kept,
                     std::uint64_t* words, cudaStream_t stream) {
  spar::detail::clear(words, partition_words(from.count) * sizeof(std::uint64_t), stream);
  spar::detail::launch(detail::partition<T, Index, Keep>, detail::take_tile::count(from.count),
                       detail::take_tile::threads, sizeof(detail::partition_memory), stream, from, begin, keep, kept_i,
                       kept_v, other_i, other_v, kept, words);
}

} // namespace spar::kernel
