// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Finds the values of a vector in device memory that reach a threshold, warp by warp, and keeps them in shared memory
// until their place in the output is known.
#pragma once

#include <spar/cuda/kernel/block.cuh>
#include <spar/cuda/kernel/language.cuh>
#include <spar/cuda/kernel/tiles.cuh>
#include <spar/storage/kernel/magnitude.hpp>

#include <cstdint>

namespace spar::inline v0_1::kernel::detail {

/// A tile of a vector: each warp of a block has a part of it, `rows` rows of one value per lane.
struct marking_tile {
  static constexpr unsigned warps = 8, threads = warps * spar::detail::warp_size;
  static constexpr unsigned rows_at_once = 4;              // whose values a warp examines together, and of which it
  static constexpr unsigned rows_ahead = 3 * rows_at_once; // loads so many more meanwhile
  static constexpr unsigned least_rows = 24, most_rows = 60;

  /// The rows for n values. Each tile waits for the counts of the tiles before it, so a tile has many rows. About 1024
  /// tiles remain, so that all multiprocessors have work.
  SPAR_HOST_DEVICE static constexpr unsigned rows_of(std::uint64_t n) {
    const std::uint64_t rows = n / (1024 * threads) / rows_ahead * rows_ahead;
    return rows < least_rows ? least_rows : rows > most_rows ? most_rows : static_cast<unsigned>(rows);
  }
  SPAR_HOST_DEVICE static constexpr std::uint64_t count(std::uint64_t n) {
    return spar::detail::tiles_of(n, std::uint64_t{threads} * rows_of(n));
  }
};

/// The positions of a lane in some rows: `first` in the vector, and others 32 apart.
struct lane_rows {
  std::uint64_t first;
  unsigned left; // positions of all lanes from `first` to the end of the warp's part

  __device__ bool has(unsigned row) const { return row * spar::detail::warp_size < left; }

  /// Sets `values[r]` to the value of `x` in row `from` + r, or to 0 beyond the end.
  template <class T>
  __device__ void read(const T* x, unsigned from, T (&values)[marking_tile::rows_at_once]) const {
    const T* const here = x + first;
    SPAR_UNROLL
    for (unsigned r = 0; r < marking_tile::rows_at_once; ++r)
      values[r] = has(from + r) ? here[(from + r) * spar::detail::warp_size] : T{};
  }
  /// Writes such values.
  template <class T>
  __device__ void write(T* x, unsigned from, const T (&values)[marking_tile::rows_at_once]) const {
    T* const here = x + first;
    SPAR_UNROLL
    for (unsigned r = 0; r < marking_tile::rows_at_once; ++r)
      if (has(from + r)) here[(from + r) * spar::detail::warp_size] = values[r];
  }
};

/// The part of a tile that belongs to a warp.
struct marking_part {
  std::uint64_t first; // in the vector of n values
  unsigned rows, size;

  __device__ marking_part(std::uint64_t n, std::uint64_t tile, unsigned rows_of_tile) : rows(rows_of_tile) {
    const std::uint64_t most = std::uint64_t{rows} * spar::detail::warp_size;
    first = (tile * marking_tile::warps + spar::detail::warp_of_thread()) * most;
    size = static_cast<unsigned>(first >= n ? 0 : n - first < most ? n - first : most);
  }

  /// This lane's positions from a row on.
  __device__ lane_rows from(unsigned row) const {
    const unsigned at = row * spar::detail::warp_size + spar::detail::lane_of_thread();
    return at < size ? lane_rows{first + at, size - at} : lane_rows{0, 0};
  }
};

/// The values of rows that have been read and not yet examined.
template <class Value>
struct values_ahead {
  static constexpr unsigned parts = marking_tile::rows_ahead / marking_tile::rows_at_once;
  Value part[parts][marking_tile::rows_at_once];

  template <class Read>
  __device__ void read_all(const lane_rows& from, Read read) {
    SPAR_UNROLL
    for (unsigned p = 0; p < parts; ++p) read(from, p * marking_tile::rows_at_once, part[p]);
  }
};

/// The marked values of a warp's part of a tile, in shared memory: the first ones themselves, of all others only where
/// they are.
template <class T>
struct marked_values {
  static constexpr unsigned room = sizeof(T) > 4 ? 128 : 256; // of at most 1920

  T value[room];
  std::uint16_t position[room];                     // in the part
  std::uint32_t marked_in[marking_tile::most_rows]; // bit l: whether lane l's value of the row is marked

  /// Marks the values for which `marks(value)` is true, and returns their number. `read(from, row, values)` sets
  /// `values[r]` to what becomes the value in row `row` + r of `from`, or to anything beyond its end. For each row with
  /// marked values, all lanes call `leave(from, row, marked, value)`: bit l of `marked` says whether lane l's value is
  /// marked, and `value` is 0 if the lane's value is kept here. Then `write(from, row, values)` gets the values of all
  /// rows, also with these zeros. `next` has the values of the first rows, and gets those of the rows at
  /// `ahead(part.rows)`; `ahead(row)` is `part.from(row)` for other rows.
  template <class Value, class Marks, class Ahead, class Read, class Leave, class Write>
  __device__ std::uint32_t find(const marking_part& part, values_ahead<Value>& next, Marks marks, Ahead ahead,
                                Read read, Leave leave, Write write) {
    using spar::detail::warp_size;
    const unsigned lane = spar::detail::lane_of_thread();
    std::uint32_t count = 0;
    for (unsigned begin = 0; begin < part.rows; begin += marking_tile::rows_ahead) {
      const lane_rows here = part.from(begin), there = ahead(begin + marking_tile::rows_ahead);
      SPAR_UNROLL
      for (unsigned p = 0; p < values_ahead<Value>::parts; ++p) {
        const unsigned first = p * marking_tile::rows_at_once;
        T values[marking_tile::rows_at_once];
        SPAR_UNROLL
        for (unsigned r = 0; r < marking_tile::rows_at_once; ++r) values[r] = static_cast<T>(next.part[p][r]);
        read(there, first, next.part[p]); // the memory works while this warp does
        std::uint32_t marks_of_row = 0;   // of the row with this lane's number
        SPAR_UNROLL
        for (unsigned r = 0; r < marking_tile::rows_at_once; ++r) {
          const bool is_marked = here.has(first + r) && marks(values[r]);
          const std::uint32_t marked = __ballot_sync(spar::detail::whole_warp, is_marked);
          if (marked == 0) continue;
          if (lane == r) marks_of_row = marked;
          const std::uint32_t rank = count + marks_below(marked, lane);
          if (is_marked && rank < room) {
            value[rank] = values[r];
            position[rank] = static_cast<std::uint16_t>((begin + first + r) * warp_size + lane);
            values[r] = T{};
          }
          leave(here, first + r, marked, values[r]);
          count += static_cast<std::uint32_t>(__popc(marked));
        }
        if (lane < marking_tile::rows_at_once) marked_in[begin + first + lane] = marks_of_row;
        write(here, first, values);
      }
    }
    return count;
  }
  /// The same for a part whose values are only read.
  template <class Marks>
  __device__ std::uint32_t find(const marking_part& part, const T* x, Marks marks) {
    const auto read = [x](const lane_rows& from, unsigned row, T(&values)[marking_tile::rows_at_once]) {
      from.read(x, row, values);
    };
    values_ahead<T> next;
    next.read_all(part.from(0), read);
    const auto ahead = [&](unsigned row) { return part.from(row); };
    const auto write = [](const lane_rows&, unsigned, const T(&)[marking_tile::rows_at_once]) {};
    return find(part, next, marks, ahead, read, [](const lane_rows&, unsigned, std::uint32_t, T) {}, write);
  }

  /// Calls `f(has, rank, at, value, is_kept)` in all lanes until each of the `count` marked values has been the one of
  /// a lane whose `has` is true, in ascending order of the positions. `read(at)` returns the value at a position of the
  /// part that is not kept. After a barrier after `find`.
  template <class Read, class F>
  __device__ void for_each(const marking_part& part, std::uint32_t count, Read read, F f) const {
    const unsigned lane = spar::detail::lane_of_thread();
    for (std::uint32_t begin = 0; begin < count && begin < room; begin += spar::detail::warp_size) {
      const bool has = begin + lane < count;
      f(has, begin + lane, has ? position[begin + lane] : 0U, has ? value[begin + lane] : T{}, true);
    }
    if (count <= room) return;
    std::uint32_t before = 0;
    for (unsigned row = 0; row < part.rows; ++row) {
      const std::uint32_t marked = marked_in[row], rank = before + marks_below(marked, lane);
      before += static_cast<std::uint32_t>(__popc(marked));
      if (before <= room) continue;
      const bool has = (marked >> lane & 1U) != 0 && rank >= room;
      const unsigned at = row * spar::detail::warp_size + lane;
      f(has, rank, at, has ? read(at) : T{}, false);
    }
  }

  /// The number of marks of the lanes below this one.
  __device__ static std::uint32_t marks_below(std::uint32_t marks, unsigned lane) {
    return static_cast<std::uint32_t>(__popc(marks & ((1U << lane) - 1)));
  }
  static_assert(room % spar::detail::warp_size == 0);
};

} // namespace spar::inline v0_1::kernel::detail
