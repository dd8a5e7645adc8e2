// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Finds the values of a vector in device memory that reach a threshold, warp by warp, and keeps them in shared memory
// until their place in the output is known.
#pragma once

#include <spar/core/host_device.hpp>
#include <spar/cuda/kernel/block.cuh>
#include <spar/cuda/kernel/language.cuh>
#include <spar/cuda/kernel/tiles.cuh>
#include <spar/storage/kernel/magnitude.hpp>

#include <cstdint>

namespace spar::kernel::detail {

/// A tile of a vector: each warp of a block has a part of it, `rows` rows of one value per lane.
struct marking_tile {
  static constexpr unsigned threads = 256, warps = threads / spar::detail::warp_size;
  static constexpr unsigned rows_at_once = 8; // that a warp loads before it looks at any
  static constexpr unsigned least_rows = 16, most_rows = 64;

  /// The rows for n values: many, because each tile waits for the counts of the tiles before it, but few enough for
  /// about 1024 tiles, so that all multiprocessors have work.
  SPAR_HOST_DEVICE static constexpr unsigned rows_of(std::uint64_t n) {
    const std::uint64_t rows = n / (1024 * threads) / rows_at_once * rows_at_once;
    return rows < least_rows ? least_rows : rows > most_rows ? most_rows : static_cast<unsigned>(rows);
  }
  SPAR_HOST_DEVICE static constexpr std::uint64_t count(std::uint64_t n) {
    return spar::detail::tiles_of(n, std::uint64_t{threads} * rows_of(n));
  }
};

/// The part of a tile that belongs to a warp.
struct marking_part {
  std::uint64_t first;
  unsigned size;

  __device__ marking_part(std::uint64_t n, std::uint64_t tile, unsigned rows) {
    const std::uint64_t most = std::uint64_t{rows} * spar::detail::warp_size;
    first = (tile * marking_tile::warps + spar::detail::warp_of_thread()) * most;
    size = static_cast<unsigned>(first >= n ? 0 : n - first < most ? n - first : most);
  }

  /// Calls `f(r, value)` with the value of `x` at each position `at` + 32 r of the part, for r < `rows_at_once`.
  template <class T, class F>
  __device__ void for_rows(T* x, unsigned at, F f) const {
    if (at >= size) return;
    T* const here = x + first + at;
    const unsigned left = size - at;
    SPAR_UNROLL
    for (unsigned r = 0; r < marking_tile::rows_at_once; ++r)
      if (r * spar::detail::warp_size < left) f(r, here[r * spar::detail::warp_size]);
  }
  /// Sets `values[r]` to such a value, or to 0 beyond the end.
  template <class T>
  __device__ void read(const T* x, unsigned at, T (&values)[marking_tile::rows_at_once]) const {
    for (T& v : values) v = T{};
    for_rows(x, at, [&](unsigned r, T value) { values[r] = value; });
  }
};

/// The marked values of a warp's part of a tile, in shared memory: the first ones themselves, of all others only where
/// they are.
template <class T>
struct marked_values {
  static constexpr unsigned room = 128; // of 2048 values, 6 %

  T value[room];
  std::uint16_t position[room];                 // in the part
  std::uint32_t marks[marking_tile::most_rows]; // bit l: whether lane l's value of the row is marked

  /// Marks the values with a magnitude of at least `threshold`, which is not 0, and returns their number. `read(at,
  /// values)` sets `values[r]` to the value at the position `at` + 32 r of the part, or to 0 beyond its end.
  /// `write(at, values, kept)` gets them again, with zeros for those that are kept here, and bit r of `kept` set.
  template <class Read, class Write>
  __device__ std::uint32_t find(unsigned rows, magnitude<T> threshold, Read read, Write write) {
    const unsigned lane = spar::detail::lane_of_thread();
    std::uint32_t count = 0;
    for (unsigned begin = 0; begin < rows; begin += marking_tile::rows_at_once) {
      const unsigned first = begin * spar::detail::warp_size + lane;
      T values[marking_tile::rows_at_once];
      read(first, values);
      unsigned kept = 0;
      std::uint32_t marks_of_row = 0; // of the row with this lane's number
      SPAR_UNROLL
      for (unsigned r = 0; r < marking_tile::rows_at_once; ++r) {
        const bool is_marked = magnitude_of(values[r]) >= threshold;
        const std::uint32_t marked = __ballot_sync(spar::detail::whole_warp, is_marked);
        if (lane == r) marks_of_row = marked;
        if (marked == 0) continue;
        const std::uint32_t rank = count + marks_below(marked, lane);
        if (is_marked && rank < room) {
          value[rank] = values[r];
          position[rank] = static_cast<std::uint16_t>(first + r * spar::detail::warp_size);
          values[r] = T{};
          kept |= 1U << r;
        }
        count += static_cast<std::uint32_t>(__popc(marked));
      }
      if (lane < marking_tile::rows_at_once) marks[begin + lane] = marks_of_row;
      write(first, values, kept);
    }
    return count;
  }

  /// Calls `f(has, at, value, is_kept)` in all lanes until each of the `count` marked values has been the one of a lane
  /// whose `has` is true, in ascending order of the positions. `read(at)` returns the value at a position of the part
  /// that is not kept. After a barrier after `find`.
  template <class Read, class F>
  __device__ void for_each(unsigned rows, std::uint32_t count, Read read, F f) const {
    const unsigned lane = spar::detail::lane_of_thread();
    for (std::uint32_t begin = 0; begin < count && begin < room; begin += spar::detail::warp_size) {
      const bool has = begin + lane < count;
      f(has, has ? position[begin + lane] : 0U, has ? value[begin + lane] : T{}, true);
    }
    if (count <= room) return;
    std::uint32_t before = 0;
    for (unsigned row = 0; row < rows; ++row) {
      const std::uint32_t marked = marks[row], rank = before + marks_below(marked, lane);
      before += static_cast<std::uint32_t>(__popc(marked));
      if (before <= room) continue;
      const bool has = (marked >> lane & 1U) != 0 && rank >= room;
      const unsigned at = row * spar::detail::warp_size + lane;
      f(has, at, has ? read(at) : T{}, false);
    }
  }

  /// The number of marks of the lanes below this one.
  __device__ static std::uint32_t marks_below(std::uint32_t marks, unsigned lane) {
    return static_cast<std::uint32_t>(__popc(marks & ((1U << lane) - 1)));
  }
  static_assert(room % spar::detail::warp_size == 0);
};

} // namespace spar::kernel::detail
