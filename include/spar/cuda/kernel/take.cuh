// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Moves the largest values out of a vector in device memory, in one pass: those that reach a threshold (Ok-Topk,
// section 3.1.3), or the k largest. The device's versions of `kernel::take_at_least` and `kernel::take_largest`.
#pragma once

#include <spar/core/element.hpp>
#include <spar/cuda/kernel/block.cuh>
#include <spar/cuda/kernel/language.cuh>
#include <spar/cuda/kernel/tiles.cuh>
#include <spar/storage/kernel/largest.hpp>
#include <spar/storage/kernel/magnitude.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace spar::kernel {

namespace detail {

/// A tile of a vector: `rows` rows of one value per thread, so that loads and stores of a warp are adjacent.
struct take_tile {
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

} // namespace detail

/// The number of words of device memory that `start_take_at_least` and `start_take_largest` need for n values.
inline std::uint64_t take_words(std::uint64_t n) { return 2 * spar::detail::tiles::words(detail::take_tile::count(n)); }

namespace detail {

/// Counts marked values of a tile: bit l of `marked[row]` says whether lane l's value of the row is marked. Sets
/// `shared.before` to the number of marked values before each warp's part of each row, and returns the number in the
/// tile. Has a barrier at its beginning and none at its end.
__device__ inline std::uint32_t count_marked(const std::uint32_t (&marked)[take_tile::rows],
                                             take_tile::memory& shared) {
  using tile = take_tile;
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
__device__ inline std::uint32_t rank_of(const std::uint32_t (&marked)[take_tile::rows], unsigned row,
                                        const take_tile::memory& shared) {
  const std::uint32_t lower = marked[row] & ((1U << spar::detail::lane_of_thread()) - 1);
  return shared.before[row * take_tile::warps + spar::detail::warp_of_thread()] +
         static_cast<std::uint32_t>(__popc(lower));
}

/// Each block moves the entries of a tile, and writes the other values to `rest`, which may be `x`. A value of `added`,
/// if not null, is added to the value of `x` first. Takes the values that `by` describes: a magnitude that they reach,
/// or a pointer to a cut. `words` belongs to the tiles; those of the tiles' ties follow.
template <class T, class Index, class By>
__global__ void __launch_bounds__(take_tile::threads)
    take(const T* added, const T* x, T* rest, std::uint64_t n, By by, std::uint64_t begin, Index* out_i, T* out_v,
         std::uint64_t room, std::uint64_t* count, std::uint64_t* words) {
  constexpr bool by_cut = std::is_pointer_v<By>; // to a cut
  magnitude<T> threshold;
  if constexpr (by_cut)
    threshold = by->threshold;
  else
    threshold = by;
  using tile = take_tile;
  auto& shared = spar::detail::block_memory<tile::memory>();
  const std::uint64_t blocks = tile::count(n);
  const spar::detail::tiles all(words);
  const std::uint64_t number = all.take(shared.state);
  const unsigned lane = spar::detail::lane_of_thread();
  const std::uint64_t first = number * tile::values + threadIdx.x;

  T value[tile::rows];
  std::uint32_t found[tile::rows]; // bit l: whether lane l's value of the row is taken
  SPAR_UNROLL
  for (unsigned row = 0; row < tile::rows; ++row) {
    const std::uint64_t at = first + row * tile::threads;
    value[row] = at < n ? x[at] : T{};
    if (added != nullptr && at < n) value[row] = static_cast<T>(value[row] + added[at]);
    found[row] = __ballot_sync(spar::detail::whole_warp, at < n && magnitude_of(value[row]) >= threshold);
  }
  if constexpr (by_cut) {
    if (by->ties < by->equal || by->count == 0) { // takes only the first ties; none from the empty cut
      std::uint32_t ties[tile::rows];
      SPAR_UNROLL
      for (unsigned row = 0; row < tile::rows; ++row) {
        const bool in = first + row * tile::threads < n;
        ties[row] = __ballot_sync(spar::detail::whole_warp, in && magnitude_of(value[row]) == threshold);
      }
      const std::uint32_t total = count_marked(ties, shared);
      const std::uint64_t base = spar::detail::tiles(words + blocks + 1).outputs_before(number, total, shared.state);
      SPAR_UNROLL
      for (unsigned row = 0; row < tile::rows; ++row) {
        const bool too_late = (ties[row] >> lane & 1U) != 0 && base + rank_of(ties, row, shared) >= by->ties;
        found[row] &= ~__ballot_sync(spar::detail::whole_warp, too_late);
      }
    }
  }
  const std::uint32_t total = count_marked(found, shared);
  const std::uint64_t base = all.outputs_before(number, total, shared.state); // has a barrier

  const bool writes_all = rest != x || added != nullptr;
  SPAR_UNROLL
  for (unsigned row = 0; row < tile::rows; ++row) {
    const std::uint64_t at = first + row * tile::threads;
    if (at >= n) break;
    bool taken = false;
    if ((found[row] >> lane & 1U) != 0) {
      const std::uint64_t to = base + rank_of(found, row, shared);
      taken = to < room; // what has no room stays
      if (taken) {
        out_i[to] = static_cast<Index>(begin + at);
        out_v[to] = value[row];
      }
    }
    if (taken || writes_all) rest[at] = taken ? T{} : value[row];
  }
  if (number + 1 == blocks && threadIdx.x == 0) *count = base + total;
}

template <class T, class Index, class By>
void start_take(const T* added, const T* x, T* rest, std::uint64_t n, By by, std::uint64_t begin, Index* out_i,
                T* out_v, std::uint64_t room, std::uint64_t* count, std::uint64_t* words, cudaStream_t stream) {
  spar::detail::clear(words, take_words(n) * sizeof(std::uint64_t), stream);
  spar::detail::launch(take<T, Index, By>, take_tile::count(n), take_tile::threads, sizeof(take_tile::memory), stream,
                       added, x, rest, n, by, begin, out_i, out_v, room, count, words);
}

} // namespace detail

/// Starts a kernel that adds the n values of `added`, if it is not null, to those of `x`, moves the nonzero sums with a
/// magnitude of at least `threshold` to the output arrays as entries `(begin + position, value)`, in ascending order of
/// the positions, and writes the other sums, and zeros for those that it has moved, to `rest`, which may be `x`. Moves
/// only the first `room` values if more qualify. Sets `*count` to the number of values that qualify. All pointers point
/// to device memory. The bits are those of the host.
template <ranked T, index_type Index>
void start_take_at_least(const T* added, const T* x, T* rest, std::uint64_t n, magnitude<T> threshold,
                         std::uint64_t begin, Index* out_i, T* out_v, std::uint64_t room, std::uint64_t* count,
                         std::uint64_t* words, cudaStream_t stream) {
  if (threshold == 0) threshold = 1; // zeros never qualify
  detail::start_take<T, Index>(added, x, rest, n, threshold, begin, out_i, out_v, room, count, words, stream);
}

/// Starts a kernel that moves the entries that `where`, a cut of `x` in device memory, describes, and leaves zeros in
/// `x`: like `start_take_at_least`, but only the first ties qualify. The output needs room for `where->count` entries.
template <ranked T, index_type Index>
void start_take_largest(T* x, std::uint64_t n, const cut<T>* where, std::uint64_t begin, Index* out_i, T* out_v,
                        std::uint64_t* count, std::uint64_t* words, cudaStream_t stream) {
  detail::start_take<T, Index, const cut<T>*>(nullptr, x, x, n, where, begin, out_i, out_v, ~std::uint64_t{0}, count,
                                              words, stream);
}

} // namespace spar::kernel
