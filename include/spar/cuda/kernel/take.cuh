// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Takes entries of a vector in device memory, in one pass: moves out the values that reach a threshold (Ok-Topk,
// section 3.1.3), or the k largest; or copies those that differ from the neutral element. The device's versions of
// `kernel::take_at_least`, `kernel::take_largest` and `to_sparse`.
#pragma once

#include <spar/core/element.hpp>
#include <spar/core/non_finite.hpp>
#include <spar/cuda/kernel/block.cuh>
#include <spar/cuda/kernel/language.cuh>
#include <spar/cuda/kernel/marked.cuh>
#include <spar/cuda/kernel/merge.cuh>
#include <spar/cuda/kernel/tiles.cuh>
#include <spar/storage/kernel/largest.hpp>
#include <spar/storage/kernel/magnitude.hpp>

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace spar::inline v0_1::kernel {

/// The number of words of device memory that `start_take_at_least` and `start_take_largest` need for n values.
inline std::uint64_t take_words(std::uint64_t n) {
  return 2 * spar::detail::tiles::words(detail::marking_tile::count(n));
}

/// The number of words of device memory that `start_copy_differing` needs for n entries.
inline std::uint64_t differing_words(std::uint64_t n) {
  return spar::detail::tiles::words(detail::marking_tile::count(n));
}

namespace detail {

/// A block of `take` has tiles one after the other. While its other warps find the values of one tile, the last warp
/// publishes the counts of the tile before it, and looks back for the one before that, by when other blocks have
/// published theirs. So no warp waits for the counts of other tiles, and loads are always in flight.
struct take_block {
  static constexpr unsigned threads = marking_tile::threads + spar::detail::warp_size;
  static constexpr std::uint64_t most = 1024; // blocks: as many as a GPU runs at the same time, or somewhat more
  /// The blocks that a multiprocessor has to run at the same time: more would keep values in local memory.
  template <class T, bool Adds>
  static constexpr unsigned at_once = sizeof(T) > 4 ? (Adds ? 1 : 2) : (Adds ? 3 : 4);
};

/// Two values that have been read and not yet added, so that no thread waits for them when it reads.
template <class T>
struct addends {
  T x, added;
  __device__ explicit operator T() const { return static_cast<T>(x + added); }
};

/// The lanes whose values of a row are in the same sector of device memory as that of this lane.
template <class T>
__device__ std::uint32_t lanes_of_sector(const T* x) {
  constexpr unsigned values = 32 / sizeof(T);
  const unsigned lane = spar::detail::lane_of_thread();
  const auto in_sector = static_cast<unsigned>((reinterpret_cast<std::uintptr_t>(x) / sizeof(T) + lane) % values);
  constexpr std::uint64_t lanes = (std::uint64_t{1} << values) - 1;
  return static_cast<std::uint32_t>(lanes << (lane + values - in_sector) >> values);
}

template <class T>
struct take_memory {
  struct step {
    std::uint64_t tile, before, ties_before;
    std::uint32_t found[marking_tile::warps], ties[marking_tile::warps]; // of each warp; `found` without the ties
  };
  step steps[8]; // in turn: while that of step s is in use, s - 3 is still read, and s + 2 is written
  marked_values<T> marked[3][marking_tile::warps]; // of the steps s to s - 2

  __device__ step& of(unsigned number) { return steps[number % 8]; }
};

/// Each block moves the entries of some tiles, and writes the other values to `rest`, which may be `x` or `added`. If
/// `Adds`, adds the values of `added` to those of `x` first. Takes the values that `by` describes: a magnitude that
/// they reach, or a pointer to one or to a cut; by a pointer, `rest` is `x`. `words` belongs to the tiles; those of the
/// tiles' ties follow.
template <class T, class Index, class By, bool Adds = false>
__global__ void __launch_bounds__(take_block::threads, take_block::at_once<T, Adds>)
    take(const T* added, const T* x, T* rest, std::uint64_t n, unsigned rows, std::uint64_t tiles, By by,
         std::uint64_t begin, Index* out_i, T* out_v, std::uint64_t room, std::uint64_t* count, std::uint64_t* words) {
  using spar::detail::whole_warp;
  constexpr bool by_cut = std::is_same_v<By, const cut<T>*>, by_pointer = std::is_pointer_v<By>;
  // Taken are all marked values, or those that are no ties and the first ties.
  magnitude<T> threshold;
  bool counts_ties = false;
  std::uint64_t most_ties = 0;
  if constexpr (by_cut) {
    if (by->count == 0) { // from the empty cut, none
      if (blockIdx.x == 0 && threadIdx.x == 0) *count = 0;
      return;
    }
    threshold = by->threshold;
    most_ties = by->ties;
    counts_ties = most_ties < by->equal;
  } else if constexpr (by_pointer) {
    threshold = *by;
  } else {
    threshold = by;
  }
  auto& shared = spar::detail::block_memory<take_memory<T>>();
  const spar::detail::tiles all(words), all_ties(words + tiles + 1);
  const unsigned warp = spar::detail::warp_of_thread(), lane = spar::detail::lane_of_thread();
  const bool looks_back = warp == marking_tile::warps;

  const bool writes_all = Adds || (!by_pointer && rest != x);
  using value_read = std::conditional_t<Adds, addends<T>, T>;
  const auto read = [&](const lane_rows& from, unsigned row, value_read(&values)[marking_tile::rows_at_once]) {
    if constexpr (Adds) {
      T of_x[marking_tile::rows_at_once], of_added[marking_tile::rows_at_once];
      from.read(x, row, of_x), from.read(added, row, of_added);
      SPAR_UNROLL
      for (unsigned r = 0; r < marking_tile::rows_at_once; ++r) values[r] = {of_x[r], of_added[r]};
    } else {
      from.read(x, row, values);
    }
  };
  // Values that shared memory keeps leave the vector at once, while the cache still has their sectors. Whole sectors
  // are written, which is faster than parts of them. Each row begins a whole number of sectors after `rest`, so a lane
  // shares its sector with the same lanes in every row.
  const std::uint32_t sector = lanes_of_sector(rest);
  const auto leave = [&](const lane_rows& from, unsigned row, std::uint32_t marked, T value) {
    if (!writes_all && (marked & sector) != 0 && from.has(row))
      rest[from.first + row * spar::detail::warp_size] = value;
  };
  const auto write = [&](const lane_rows& from, unsigned row, const T(&values)[marking_tile::rows_at_once]) {
    if (writes_all) from.write(rest, row, values);
  };
  const auto move = [&](const typename take_memory<T>::step& step, const marked_values<T>& marked) {
    const marking_part part(n, step.tile, rows);
    std::uint64_t to = step.before, tie = step.ties_before;
    for (unsigned w = 0; w < warp; ++w) to += step.found[w], tie += step.ties[w];
    if (counts_ties) to += tie < most_ties ? tie : most_ties;
    const auto read_left = [&](unsigned at) { return rest[part.first + at]; };
    const auto move_one = [&](bool has, unsigned, unsigned at, T value, bool is_kept) {
      bool is_taken = has;
      if (counts_ties) {
        const std::uint32_t equal = __ballot_sync(whole_warp, has && magnitude_of(value) == threshold);
        const std::uint64_t own = tie + marked.marks_below(equal, lane);
        if ((equal >> lane & 1U) != 0 && own >= most_ties) is_taken = false;
        tie += static_cast<std::uint32_t>(__popc(equal));
      }
      const std::uint32_t taken = __ballot_sync(whole_warp, is_taken);
      const std::uint64_t own = to + marked.marks_below(taken, lane);
      to += static_cast<std::uint32_t>(__popc(taken));
      is_taken = is_taken && own < room; // what has no room stays
      if (is_taken) {
        out_i[own] = static_cast<Index>(begin + part.first + at);
        out_v[own] = value;
      }
      if (has && is_taken != is_kept) rest[part.first + at] = is_taken ? T{} : value;
    };
    marked.for_each(part, step.found[warp] + step.ties[warp], read_left, move_one);
    if (step.tile + 1 == tiles && threadIdx.x == marking_tile::threads - 1) *count = to; // by the last warp
    __syncwarp(); // the values of the next step take the place of these, and a ballot does not order memory
  };

  // The tile of the next step is known, so that a step's last loads are those of the next step's first rows. If there
  // are blocks enough, none gets a second tile.
  const auto next_tile = [&] { return gridDim.x < tiles ? all.take() : tiles; };
  if (looks_back && lane == 0) shared.of(0).tile = all.take(), shared.of(1).tile = next_tile();
  __syncthreads();
  values_ahead<value_read> next{};
  if (!looks_back) next.read_all(marking_part(n, shared.of(0).tile, rows).from(0), read);
  for (unsigned s = 0;; ++s) {
    auto& step = shared.of(s);
    if (looks_back) {
      const auto total = [&](const std::uint32_t(&of_warp)[marking_tile::warps]) {
        return spar::detail::warp_sum(lane < marking_tile::warps ? of_warp[lane] : 0U);
      };
      if (s > 0 && shared.of(s - 1).tile < tiles) {
        const auto& found = shared.of(s - 1);
        all.publish(found.tile, total(found.found));
        if (counts_ties) all_ties.publish(found.tile, total(found.ties));
      }
      if (s > 1) {
        auto& earlier = shared.of(s - 2);
        const std::uint64_t before = all.look_back(earlier.tile, total(earlier.found));
        const std::uint64_t ties = counts_ties ? all_ties.look_back(earlier.tile, total(earlier.ties)) : 0;
        if (lane == 0) earlier.before = before, earlier.ties_before = ties;
      }
      if (lane == 0) shared.of(s + 2).tile = next_tile();
    } else if (step.tile < tiles) {
      const marking_part part(n, step.tile, rows);
      std::uint32_t ties = 0;
      const auto marks = [&](T value) {
        const magnitude<T> m = magnitude_of(value);
        if (by_cut && m == threshold) ++ties;
        return m >= threshold;
      };
      const auto ahead = [&](unsigned row) {
        return row < rows ? part.from(row) : marking_part(n, shared.of(s + 1).tile, rows).from(0);
      };
      auto& marked = shared.marked[s % 3][warp];
      const std::uint32_t found = marked.find(part, next, marks, ahead, read, leave, write);
      ties = counts_ties ? spar::detail::warp_sum(ties) : 0;
      if (lane == 0) step.found[warp] = found - ties, step.ties[warp] = ties;
    }
    __syncthreads();
    if (s > 1 && !looks_back) move(shared.of(s - 2), shared.marked[(s - 2) % 3][warp]);
    if (s > 0 && shared.of(s - 1).tile >= tiles) return;
  }
}

template <class T, class Index, class By>
void start_take(const T* added, const T* x, T* rest, std::uint64_t n, By by, std::uint64_t begin, Index* out_i,
                T* out_v, std::uint64_t room, std::uint64_t* count, std::uint64_t* words, cudaStream_t stream) {
  spar::detail::clear(words, take_words(n) * sizeof(std::uint64_t), stream);
  auto* const kernel = added == nullptr ? take<T, Index, By> : take<T, Index, By, !std::is_pointer_v<By>>;
  const std::uint64_t tiles = marking_tile::count(n);
  spar::detail::launch(kernel, std::min(tiles, take_block::most), take_block::threads, sizeof(take_memory<T>), stream,
                       added, x, rest, n, marking_tile::rows_of(n), tiles, by, begin, out_i, out_v, room, count, words);
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
  const std::uint32_t found = marked.find(part, values, [&](T value) { return spar::detail::differs(value, neutral); });
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

/// The same for a threshold in device memory, which is not 0: moves values out of `x`, and leaves zeros there.
template <ranked T, index_type Index>
void start_take_at_least(T* x, std::uint64_t n, const magnitude<T>* threshold, Index* out_i, T* out_v,
                         std::uint64_t room, std::uint64_t* count, std::uint64_t* words, cudaStream_t stream) {
  detail::start_take<T, Index, const magnitude<T>*>(nullptr, x, x, n, threshold, 0, out_i, out_v, room, count, words,
                                                    stream);
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

} // namespace spar::inline v0_1::kernel
