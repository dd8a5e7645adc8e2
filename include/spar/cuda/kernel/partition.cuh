// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Divides the entries of a stream or the values of a vector, in device memory, into those to keep and all others, in
// one pass. The device's versions of `keep_largest` and `kernel::keep_from`.
#pragma once

#include <spar/core/element.hpp>
#include <spar/cuda/kernel/block.cuh>
#include <spar/cuda/kernel/language.cuh>
#include <spar/cuda/kernel/merge.cuh>
#include <spar/cuda/kernel/tiles.cuh>
#include <spar/storage/kernel/largest.hpp>
#include <spar/storage/kernel/magnitude.hpp>

#include <cstdint>
#include <type_traits>

namespace spar::inline v0_1::kernel {

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

namespace detail {

/// A tile of entries: `rows` rows of one entry per thread, so that loads and stores of a warp are adjacent.
struct partition_tile {
  static constexpr unsigned threads = 256, rows = 16, warps = threads / spar::detail::warp_size;
  static constexpr std::uint64_t values = threads * rows;

  struct memory {
    std::uint32_t before[rows * warps]; // see `count_marked`
    spar::detail::block_sum<threads> sums;
    spar::detail::tiles::block_state state;
  };
  static_assert(rows * warps <= threads);

  SPAR_HOST_DEVICE static constexpr std::uint64_t count(std::uint64_t n) { return spar::detail::tiles_of(n, values); }
};

/// Counts marked values of a tile: bit l of `marked[row]` says whether lane l's value of the row is marked. Sets
/// `shared.before` to the number of marked values before each warp's part of each row, and returns the number in the
/// tile. Has a barrier at its beginning and none at its end.
__device__ inline std::uint32_t count_marked(const std::uint32_t (&marked)[partition_tile::rows],
                                             partition_tile::memory& shared) {
  using tile = partition_tile;
  const unsigned thread = threadIdx.x, warp = spar::detail::warp_of_thread();
  __syncthreads();
  if (spar::detail::lane_of_thread() == 0) {
    SPAR_UNROLL
    for (unsigned row = 0; row < tile::rows; ++row)
      shared.before[row * tile::warps + warp] = static_cast<std::uint32_t>(__popc(marked[row]));
  }
  __syncthreads();
  std::uint32_t total = 0;
  const bool counts = thread < tile::rows * tile::warps;
  const std::uint32_t before = shared.sums.exclusive(counts ? shared.before[thread] : 0, total);
  if (counts) shared.before[thread] = before;
  return total;
}

/// The number of marked values of the tile before this thread's value of a row; after a barrier after `count_marked`.
__device__ inline std::uint32_t rank_of(const std::uint32_t (&marked)[partition_tile::rows], unsigned row,
                                        const partition_tile::memory& shared) {
  const std::uint32_t lower = marked[row] & ((1U << spar::detail::lane_of_thread()) - 1);
  return shared.before[row * partition_tile::warps + spar::detail::warp_of_thread()] +
         static_cast<std::uint32_t>(__popc(lower));
}

/// The blocks that a multiprocessor has to run at the same time. With fewer blocks, ptxas uses more registers than
/// needed; with more, ptxas keeps values in local memory.
template <class T, class Index>
inline constexpr unsigned partition_blocks = sizeof(T) + sizeof(Index) > 8 ? 2 : 3;

/// The entries of a tile. Each thread has one entry in each row; the last rows of the last tile may have none.
template <class T, class Index>
struct partition_part {
  const Index* indices; // may be null
  const T* values;
  std::uint64_t begin; // the first index, if `indices` is null
  unsigned count;

  __device__ partition_part(const device_coo<T, Index>& from, std::uint64_t first_index, std::uint64_t first)
      : indices(from.indices == nullptr ? nullptr : from.indices + first), values(from.values + first),
        begin(first_index + first),
        count(static_cast<unsigned>(from.count - first < partition_tile::values ? from.count - first
                                                                                : partition_tile::values)) {}

  /// The position in the tile of this thread's entry of a row.
  __device__ static unsigned at(unsigned row) { return row * partition_tile::threads + threadIdx.x; }
  __device__ bool has(unsigned row) const { return at(row) < count; }
  __device__ Index index(unsigned at) const {
    return indices == nullptr ? static_cast<Index>(begin + at) : indices[at];
  }
};

/// Marks the entries that `keep` describes: bit l of `found[row]` belongs to lane l's entry of the row. Reads all
/// values of the tile `number`. `words` belongs to the tiles' ties.
template <class T, class Index, class Keep>
__device__ void mark(const partition_part<T, Index>& part, const Keep& keep, T (&value)[partition_tile::rows],
                     std::uint32_t (&found)[partition_tile::rows], partition_tile::memory& shared, std::uint64_t number,
                     std::uint64_t* words) {
  using tile = partition_tile;
  SPAR_UNROLL
  for (unsigned row = 0; row < tile::rows; ++row) value[row] = part.has(row) ? part.values[part.at(row)] : T{};
  const cut<T>& where = keep.cut_of_block();
  const magnitude<T> threshold = where.threshold;
  const std::uint64_t most = where.ties;
  SPAR_UNROLL
  for (unsigned row = 0; row < tile::rows; ++row) {
    const magnitude<T> m = magnitude_of(value[row]);
    const bool stays = m > threshold || (most > 0 && m == threshold);
    found[row] = __ballot_sync(spar::detail::whole_warp, part.has(row) && stays);
  }
  if (most == 0 || most >= where.equal) return; // no tie or all ties
  std::uint32_t ties[tile::rows];
  SPAR_UNROLL
  for (unsigned row = 0; row < tile::rows; ++row)
    ties[row] = __ballot_sync(spar::detail::whole_warp, part.has(row) && magnitude_of(value[row]) == threshold);
  const std::uint32_t total = count_marked(ties, shared);
  const std::uint64_t before = spar::detail::tiles(words).outputs_before(number, total, shared.state);
  const std::uint64_t left = before < most ? most - before : 0; // ties that this tile and later ones may keep
  const auto own = static_cast<std::uint32_t>(left < total ? left : total);
  if (own == total) return;
  SPAR_UNROLL
  for (unsigned row = 0; row < tile::rows; ++row) {
    const bool is_tie = (ties[row] >> spar::detail::lane_of_thread() & 1U) != 0;
    const bool too_late = is_tie && rank_of(ties, row, shared) >= own;
    found[row] &= ~__ballot_sync(spar::detail::whole_warp, too_late);
  }
}

/// Each block divides the entries of a tile, if there is one for it. `words` belongs to the tiles; those of the tiles'
/// ties follow.
template <class T, class Index, class Keep, class From>
__global__ void __launch_bounds__(partition_tile::threads, partition_blocks<T, Index>)
    partition(From given, std::uint64_t begin, Keep keep, Index* kept_i, T* kept_v, Index* other_i, T* other_v,
              std::uint64_t* kept, std::uint64_t* words) {
  using tile = partition_tile;
  auto& shared = spar::detail::block_memory<tile::memory>();
  const spar::detail::tiles all(words);
  const device_coo<T, Index> from = stream_in(given);
  const std::uint64_t blocks = tile::count(from.count), number = all.take(shared.state);
  if (number >= blocks) return;
  const std::uint64_t first = number * tile::values;
  const partition_part<T, Index> part(from, begin, first);

  T value[tile::rows];
  Index index[tile::rows];
  std::uint32_t found[tile::rows]; // bit l: whether lane l's entry of the row stays
  mark(part, keep, value, found, shared, number, words + blocks + 1);

  // Reads the indices only of entries that have an output.
  const unsigned lane = spar::detail::lane_of_thread();
  SPAR_UNROLL
  for (unsigned row = 0; row < tile::rows; ++row) {
    const bool used = part.has(row) && (other_i != nullptr || (found[row] >> lane & 1U) != 0);
    index[row] = used ? part.index(part.at(row)) : Index{};
  }
  const std::uint32_t total = count_marked(found, shared);
  const std::uint64_t base = all.outputs_before(number, total, shared.state); // has a barrier

  SPAR_UNROLL
  for (unsigned row = 0; row < tile::rows; ++row) {
    if (!part.has(row)) break;
    const std::uint32_t before = rank_of(found, row, shared); // entries of the tile before this one that stay
    if ((found[row] >> lane & 1U) != 0) {
      kept_i[base + before] = index[row];
      kept_v[base + before] = value[row];
    } else if (other_i != nullptr) {
      const std::uint64_t to = first - base + (part.at(row) - before);
      other_i[to] = index[row];
      other_v[to] = value[row];
    }
  }
  if (number + 1 == blocks && threadIdx.x == 0) *kept = base + total;
}

} // namespace detail

/// The number of words of device memory that `start_partition` needs for n entries.
inline std::uint64_t partition_words(std::uint64_t n) {
  return 2 * spar::detail::tiles::words(detail::partition_tile::count(n));
}

/// Starts a kernel that copies the entries of `from` that `keep` describes to `kept_i` and `kept_v`, and all others to
/// `other_i` and `other_v`, both in their old order; if `other_i` is null, the others are dropped. `keep` is a
/// `by_cut` or a `by_cut_at`. If `from.indices` is null, entry e has the index `begin` + e; otherwise `begin` is not
/// used. Sets `*kept` to the number of entries kept. The outputs need room for the entries that they get, and must not
/// overlap `from`. All pointers point to memory that the device can access.
template <element T, index_type Index, class Keep>
void start_partition(device_coo<T, Index> from, std::uint64_t begin, Keep keep, Index* kept_i, T* kept_v,
                     std::type_identity_t<Index>* other_i, std::type_identity_t<T>* other_v, std::uint64_t* kept,
                     std::uint64_t* words, cudaStream_t stream) {
  spar::detail::clear(words, partition_words(from.count) * sizeof(std::uint64_t), stream);
  spar::detail::launch(detail::partition<T, Index, Keep, device_coo<T, Index>>,
                       detail::partition_tile::count(from.count), detail::partition_tile::threads,
                       sizeof(detail::partition_tile::memory), stream, from, begin, keep, kept_i, kept_v, other_i,
                       other_v, kept, words);
}

/// The same for a stream whose description is in device memory: of at most `most` entries, copies those that `keep`
/// describes.
template <element T, index_type Index, class Keep>
void start_partition(const device_coo<T, Index>* from, std::uint64_t most, Keep keep, Index* kept_i, T* kept_v,
                     std::uint64_t* kept, std::uint64_t* words, cudaStream_t stream) {
  spar::detail::clear(words, partition_words(most) * sizeof(std::uint64_t), stream);
  spar::detail::launch(detail::partition<T, Index, Keep, const device_coo<T, Index>*>,
                       detail::partition_tile::count(most), detail::partition_tile::threads,
                       sizeof(detail::partition_tile::memory), stream, from, 0, keep, kept_i, kept_v, nullptr, nullptr,
                       kept, words);
}

} // namespace spar::inline v0_1::kernel
