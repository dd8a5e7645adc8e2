// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernels that treat each value on its own: a block has a tile of values, and each thread one value of each row.
#pragma once

#include <spar/cuda/kernel/language.cuh>

#include <cstdint>

namespace spar::inline v0_1::detail {

struct row_tile {
  static constexpr unsigned threads = 256, rows = 8;
  static constexpr std::uint64_t values = threads * rows;
};

/// Calls `f(position)` for the positions of this thread in the block's tile of n values. Neighbouring threads have
/// neighbouring positions.
template <class F>
__device__ void for_rows(std::uint64_t n, F f) {
  const std::uint64_t first = blockIdx.x * row_tile::values + threadIdx.x;
  SPAR_UNROLL
  for (unsigned row = 0; row < row_tile::rows; ++row) {
    const std::uint64_t at = first + row * row_tile::threads;
    if (at < n) f(at);
  }
}

/// Calls `write(position, read(position))` for the same positions, but reads all rows before it writes any: a compiler
/// that cannot know whether the outputs overlap the inputs keeps the order of reads and writes, so that only one value
/// of a thread would be on the way from memory at a time. The memory that `write` changes at a position must be read
/// only for the same position.
template <class Read, class Write>
__device__ void for_rows(std::uint64_t n, Read read, Write write) {
  const std::uint64_t first = blockIdx.x * row_tile::values + threadIdx.x;
  decltype(read(first)) value[row_tile::rows];
  SPAR_UNROLL
  for (unsigned row = 0; row < row_tile::rows; ++row) {
    const std::uint64_t at = first + row * row_tile::threads;
    if (at < n) value[row] = read(at);
  }
  SPAR_UNROLL
  for (unsigned row = 0; row < row_tile::rows; ++row) {
    const std::uint64_t at = first + row * row_tile::threads;
    if (at < n) write(at, value[row]);
  }
}

/// This thread's position in a row of the block's tile of n > 0 values, or the last one beyond the end. For kernels
/// that only read: without a condition around them, all rows are read at the same time.
__device__ inline std::uint64_t row_position(unsigned row, std::uint64_t n) {
  const std::uint64_t at = blockIdx.x * row_tile::values + row * row_tile::threads + threadIdx.x;
  return at < n ? at : n - 1;
}

/// Starts a kernel whose blocks call `for_rows(n, ...)`. Starts nothing if n is 0.
template <class... Parameters, class... Arguments>
void launch_rows(void (*kernel)(Parameters...), std::uint64_t n, cudaStream_t stream, Arguments... arguments) {
  const std::uint64_t blocks = n / row_tile::values + (n % row_tile::values != 0 ? 1 : 0);
  launch(kernel, blocks, row_tile::threads, 0, stream, arguments...);
}

} // namespace spar::inline v0_1::detail
