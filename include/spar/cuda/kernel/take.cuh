// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Takes entries of a vector in device memory, in one pass: moves out the values that reach a threshold (Ok-Topk,
// section 3.1.3), or the k largest; or copies those that differ from the neutral element. The device's versions of
// `kernel::take_at_least`, `kernel::take_largest` and `to_sparse`.
#pragma once

#include <spar/core/element.hpp>
#include <spar/cuda/kernel/block.cuh>
#include <spar/cuda/kernel/language.cuh>
#include <spar/cuda/kernel/marked.cuh>
#include <spar/cuda/kernel/merge.cuh>
#include <spar/cuda/kernel/tiles.cuh>
#include <spar/storage/kernel/largest.hpp>
#include <spar/storage/kernel/magnitude.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace spar::kernel {

/// The number of words of device memory that `start_take_at_least` and `start_take_largest` need for n values.
inline std::uint64_t take_words(std::uint64_t n) {
  return 2 * spar::detail::tiles::words(detail::marking_tile::count(n));
}

/// The number of words of device memory that `start_copy_differing` needs for n entries.
inline std::uint64_t differing_words(std::uint64_t n) {
  return spar::detail::tiles::words(detail::marking_tile::count(n));
}

namespace detail {

template <class T>
struct take_memory {
  marked_values<T> marked[marking_tile::warps];
  spar::detail::block_sum<marking_tile::threads> sums, tie_sums;
  spar::detail::tiles::block_state state;
  std::uint64_t ties_before;
};

/// Each block moves the entries of a tile, and writes the other values to `rest`, which may be `x` or `added`. If
/// `Adds`, adds the values of `added` to those of `x` first. Takes the values that `by` describes: a magnitude that
/// they reach, or a pointer to a cut; by a cut, `rest` is `x`. `words` belongs to the tiles; those of the tiles' ties
/// follow.
template <class T, class Index, class By, bool Adds = false>
__global__ void __launch_bounds__(marking_tile::threads)
    take(const T* added, const T* x, T* rest, std::uint64_t n, unsigned rows, By by, std::uint64_t begin, Index* out_i,
         T* out_v, std::uint64_t room, std::uint64_t* count, std::uint64_t* words) {
  constexpr bool by_cut = std::is_pointer_v<By>; // to a cut
  magnitude<T> threshold;
  if constexpr (by_cut)
    threshold = by->threshold;
  else
    threshold = by;
  auto& shared = spar::detail::block_memory<take_memory<T>>();
  const spar::detail::tiles all(words);
  const std::uint64_t number = all.take(shared.state);
  const unsigned warp = spar::detail::warp_of_thread();
  auto& marked = shared.marked[warp];

  const bool writes_all = Adds || (!by_cut && rest != x);
  const marking_part part(n, number, rows);
  const auto read = [&](unsigned at, T(&values)[marking_tile::rows_at_once]) {
    part.read(x, at, values);
    if constexpr (Adds) {
      T more[marking_tile::rows_at_once];
      part.read(added, at, more);
      for (unsigned r = 0; r < marking_tile::rows_at_once; ++r) values[r] = static_cast<T>(values[r] + more[r]);
    }
  };
  // Values that shared memory keeps leave the vector at once, while the cache still has their sectors.
  const auto write = [&](unsigned at, const T(&values)[marking_tile::rows_at_once], unsigned kept) {
    if (writes_all) return part.for_rows(rest, at, [&](unsigned r, T& value) { value = values[r]; });
    if (kept == 0) return;
    T* const here = rest + part.first + at;
    SPAR_UNROLL
    for (unsigned r = 0; r < marking_tile::rows_at_once; ++r)
      if ((kept >> r & 1U) != 0) here[r * spar::detail::warp_size] = T{};
  };
  const std::uint32_t found = marked.find(part, [&](T value) { return magnitude_of(value) >= threshold; }, read, write);

  const auto read_left = [&](unsigned at) { return rest[part.first + at]; };

  // Taken are all marked values, or those that are no ties and the first ties; from the empty cut, none.
  bool counts_ties = false;
  std::uint64_t most_ties = 0;
  if constexpr (by_cut) {
    most_ties = by->ties;
    counts_ties = most_ties < by->equal || by->count == 0;
  }
  std::uint32_t ties = 0;
  if (counts_ties) {
    __syncthreads();
    marked.for_each(part, found, read_left, [&](bool has, unsigned, unsigned, T value, bool) {
      ties += has && magnitude_of(value) == threshold ? 1 : 0;
    });
    ties = spar::detail::warp_sum(ties);
  }
  std::uint32_t total = 0, total_ties = 0;
  std::uint64_t to = shared.sums.exclusive_of_warps(found - ties, total), tie = 0;
  if (counts_ties) tie = shared.tie_sums.exclusive_of_warps(ties, total_ties);
  if (warp == 0) {
    const std::uint64_t before = all.look_back(number, total);
    if (threadIdx.x == 0) shared.state.before = before;
  } else if (warp == 1 && counts_ties) {
    const std::uint64_t before = spar::detail::tiles(words + gridDim.x + 1).look_back(number, total_ties);
    if (spar::detail::lane_of_thread() == 0) shared.ties_before = before;
  }
  __syncthreads();
  to += shared.state.before;
  if (counts_ties) {
    tie += shared.ties_before;
    to += tie < most_ties ? tie : most_ties;
  }

  const auto move = [&](bool has, unsigned, unsigned at, T value, bool is_kept) {
    const unsigned lane = spar::detail::lane_of_thread();
    bool is_taken = has;
    if (counts_ties) {
      const std::uint32_t equal = __ballot_sync(spar::detail::whole_warp, has && magnitude_of(value) == threshold);
      const std::uint64_t own = tie + marked.marks_below(equal, lane);
      if ((equal >> lane & 1U) != 0 && own >= most_ties) is_taken = false;
      tie += static_cast<std::uint32_t>(__popc(equal));
    }
    const std::uint32_t taken = __ballot_sync(spar::detail::whole_warp, is_taken);
    const std::uint64_t own = to + marked.marks_below(taken, lane);
    to += static_cast<std::uint32_t>(__popc(taken));
    is_taken = is_taken && own < room; // what has no room stays
    if (is_taken) {
      out_i[own] = static_cast<Index>(begin + part.first + at);
      out_v[own] = value;
    }
    if (has && is_taken != is_kept) rest[part.first + at] = is_taken ? T{} : value;
  };
  marked.for_each(part, found, read_left, move);
  if (number + 1 == gridDim.x && threadIdx.x == marking_tile::threads - 1) *count = to; // by the last warp
}

template <class T, class Index, class By>
void start_take(const T* added, const T* x, T* rest, std::uint64_t n, By by, std::uint64_t begin, Index* out_i,
                T* out_v, std::uint64_t room, std::uint64_t* count, std::uint64_t* words, cudaStream_t stream) {
  spar::detail::clear(words, take_words(n) * sizeof(std::uint64_t), stream);
  auto* const kernel = added == nullptr ? take<T, Index, By> : take<T, Index, By, !std::is_pointer_v<By>>;
  spar::detail::launch(kernel, marking_tile::count(n), marking_tile::threads, sizeof(take_memory<T>), stream, added, x,
                       rest, n, marking_tile::rows_of(n), by, begin, out_i, out_v, room, count, words);
}

template <class T>
struct differing_memory {
  marked_values<T> marked[marking_tile::warps];
  spar::detail::block_sum<marking_tile::threads> sums;
  spar::detail::tiles::block_state state;
};

/// Each block copies the entries of a tile.
template <class T, class Index>
__global__ void __launch_bounds__(marking_tile::threads)
    copy_differing(device_coo<T, Index> from, unsigned rows, std::uint64_t begin, T neutral, Index* out_i, T* out_v,
                   std::uint64_t* count, std::uint64_t* words) {
  auto& shared = spar::detail::block_memory<differing_memory<T>>();
  const spar::detail::tiles all(words);
  const std::uint64_t number = all.take(shared.state);
  auto& marked = shared.marked[spar::detail::warp_of_thread()];
  const marking_part part(from.count, number, rows);
  const T* const values = from.values;
  const auto read = [&](unsigned at, T(&some)[marking_tile::rows_at_once]) { part.read(values, at, some); };
  const auto keep_all = [](unsigned, const T(&)[marking_tile::rows_at_once], unsigned) {};
  const std::uint32_t found = marked.find(part, [&](T value) { return value != neutral; }, read, keep_all);
  std::uint32_t total = 0;
  std::uint64_t to = shared.sums.exclusive_of_warps(found, total);
  to += all.outputs_before(number, total, shared.state);
  const auto read_again = [&](unsigned at) { return values[part.first + at]; };
  marked.for_each(part, found, read_again, [&](bool has, unsigned rank, unsigned at, T value, bool) {
    if (!has) return;
    const std::uint64_t e = part.first + at;
    out_i[to + rank] = from.indices == nullptr ? static_cast<Index>(begin + e) : from.indices[e];
    out_v[to + rank] = value;
  });
  if (number + 1 == gridDim.x && threadIdx.x == marking_tile::threads - 1) *count = to + found; // by the last warp
}

} // namespace detail

/// Starts a kernel that adds the n values of `added`, if it is not null, to those of `x`, moves the nonzero sums with a
/// magnitude of at least `threshold` to the output arrays as entries `(begin + position, value)`, in ascending order of
/// the positions, and writes the other sums, and zeros for those that it has moved, to `rest`, which may be `x`. Moves
/// only the first `room` values if more qualify. Sets `*count` to the number of values that qualify. All pointers point
/// to memory that the device can access. The bits are those of the host.
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

/// Starts a kernel that copies the entries of `from` whose value differs from `neutral`, and those that are NaN, to the
/// output arrays, in their old order, and sets `*count` to their number. If `from.indices` is null, entry e has the
/// index `begin` + e; otherwise `begin` is not used. The outputs must not overlap `from`. All pointers point to memory
/// that the device can access.
template <element T, index_type Index>
void start_copy_differing(device_coo<T, Index> from, std::uint64_t begin, T neutral, Index* out_i, T* out_v,
                          std::uint64_t* count, std::uint64_t* words, cudaStream_t stream) {
  spar::detail::clear(words, differing_words(from.count) * sizeof(std::uint64_t), stream);
  spar::detail::launch(detail::copy_differing<T, Index>, detail::marking_tile::count(from.count),
                       detail::marking_tile::threads, sizeof(detail::differing_memory<T>), stream, from,
                       detail::marking_tile::rows_of(from.count), begin, neutral, out_i, out_v, count, words);
}

} // namespace spar::kernel
