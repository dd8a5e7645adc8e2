// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Moves the values whose magnitude reaches a threshold out of a vector in device memory, in one pass (Ok-Topk, section
// 3.1.3). The device's version of `kernel::take_at_least`.
#pragma once

#include <spar/core/element.hpp>
#include <spar/cuda/block.cuh>
#include <spar/cuda/language.cuh>
#include <spar/cuda/tiles.cuh>
#include <spar/storage/kernel/magnitude.hpp>

#include <cstddef>
#include <cstdint>

namespace spar::kernel {

namespace detail {

/// A tile of `take_at_least`: `rows` rows of one value per thread, so that loads and stores of a warp are adjacent.
struct take_tile {
  static constexpr unsigned threads = 256, rows = 16, warps = threads / spar::detail::warp_size;
  static constexpr std::uint64_t values = threads * rows;

  struct memory {
    std::uint32_t before[rows * warps]; // entries of the tile before those of a warp in a row
    spar::detail::block_sum<threads> sums;
    spar::detail::tiles::block_state state;
  };
  static_assert(rows * warps <= threads);

  SPAR_HOST_DEVICE static constexpr std::uint64_t count(std::uint64_t n) { return spar::detail::tiles_of(n, values); }
};

/// Each block moves the entries of a tile. A value of `added`, if not null, is added to the value in `x` first.
template <class T, class Index>
__global__ void __launch_bounds__(take_tile::threads)
    take_at_least(const T* added, T* x, std::uint64_t n, magnitude<T> threshold, std::uint64_t begin, Index* out_i,
                  T* out_v, std::uint64_t room, std::uint64_t* count, void* words) {
  using tile = take_tile;
  auto& shared = spar::detail::block_memory<tile::memory>();
  const spar::detail::tiles all(words);
  const std::uint64_t number = all.take(shared.state);
  const unsigned thread = threadIdx.x, lane = spar::detail::lane_of_thread(), warp = spar::detail::warp_of_thread();
  const std::uint64_t first = number * tile::values + thread;

  T value[tile::rows];
  std::uint32_t found[tile::rows]; // bit l: whether lane l's value of the row qualifies
  SPAR_UNROLL
  for (unsigned row = 0; row < tile::rows; ++row) {
    const std::uint64_t at = first + row * tile::threads;
    value[row] = at < n ? x[at] : T{};
    if (added != nullptr && at < n) value[row] = static_cast<T>(value[row] + added[at]);
    found[row] = __ballot_sync(spar::detail::whole_warp, at < n && magnitude_of(value[row]) >= threshold);
    if (lane == 0) shared.before[row * tile::warps + warp] = static_cast<std::uint32_t>(__popc(found[row]));
  }
  __syncthreads();
  std::uint32_t total = 0;
  const bool counts = thread < tile::rows * tile::warps;
  const std::uint32_t before = shared.sums.exclusive(counts ? shared.before[thread] : 0, total);
  if (counts) shared.before[thread] = before;
  const std::uint64_t base = all.outputs_before(number, total, shared.state); // has a barrier: `before` is complete

  SPAR_UNROLL
  for (unsigned row = 0; row < tile::rows; ++row) {
    const std::uint64_t at = first + row * tile::threads;
    if (at >= n) break;
    bool taken = false;
    if (found[row] >> lane & 1U) {
      const std::uint32_t lower = found[row] & ((1U << lane) - 1);
      const std::uint64_t to =
          base + shared.before[row * tile::warps + warp] + static_cast<std::uint32_t>(__popc(lower));
      taken = to < room; // what has no room stays in `x`
      if (taken) {
        out_i[to] = static_cast<Index>(begin + at);
        out_v[to] = value[row];
      }
    }
    if (taken || added != nullptr) x[at] = taken ? T{} : value[row];
  }
  if (number + 1 == tile::count(n) && thread == 0) *count = base + total;
}

} // namespace detail

/// The bytes of device memory that `take_at_least` needs for n values. They must be zero before each call.
inline std::size_t take_at_least_bytes(std::uint64_t n) {
  return spar::detail::tiles::bytes(detail::take_tile::count(n));
}

/// Starts a kernel that first adds the n values of `added`, if it is not null, to those of `x`, and then moves the
/// nonzero values of `x` with a magnitude of at least `threshold` to the output arrays as entries
/// `(begin + position, value)`, in ascending order of the positions. Leaves zeros in `x`. Moves only the first `room`
/// values if more qualify, and leaves the others in `x`. Sets `*count` to the number of values that qualify. All
/// pointers point to device memory. The bits are those of the host.
template <ranked T, index_type Index>
void start_take_at_least(const T* added, T* x, std::uint64_t n, magnitude<T> threshold, std::uint64_t begin,
                         Index* out_i, T* out_v, std::uint64_t room, std::uint64_t* count, void* words,
                         cudaStream_t stream) {
  using tile = detail::take_tile;
  if (threshold == 0) threshold = 1; // zeros never qualify
  spar::detail::launch(detail::take_at_least<T, Index>, tile::count(n), tile::threads, sizeof(tile::memory), stream,
                       added, x, n, threshold, begin, out_i, out_v, room, count, words);
}

} // namespace spar::kernel
