// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Copies the entries of a vector or stream in device memory that differ from the neutral element, in one pass. The
// device's version of `to_sparse`.
#pragma once

#include <spar/core/element.hpp>
#include <spar/cuda/kernel/block.cuh>
#include <spar/cuda/kernel/language.cuh>
#include <spar/cuda/kernel/marked.cuh>
#include <spar/cuda/kernel/merge.cuh>
#include <spar/cuda/kernel/tiles.cuh>

#include <cstdint>

namespace spar::kernel {

/// The number of words of device memory that `start_copy_differing` needs for n entries.
inline std::uint64_t differing_words(std::uint64_t n) {
  return spar::detail::tiles::words(detail::marking_tile::count(n));
}

namespace detail {

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

/// Starts a kernel that copies the entries of `from` whose value differs from `neutral`, and those that are NaN, to the
/// output arrays, in their old order, and sets `*count` to their number. If `from.indices` is null, entry e has the
/// index `begin` + e; otherwise `begin` is not used. The outputs must not overlap `from`. All pointers point to device
/// memory.
template <element T, index_type Index>
void start_copy_differing(device_coo<T, Index> from, std::uint64_t begin, T neutral, Index* out_i, T* out_v,
                          std::uint64_t* count, std::uint64_t* words, cudaStream_t stream) {
  spar::detail::clear(words, differing_words(from.count) * sizeof(std::uint64_t), stream);
  spar::detail::launch(detail::copy_differing<T, Index>, detail::marking_tile::count(from.count),
                       detail::marking_tile::threads, sizeof(detail::differing_memory<T>), stream, from,
                       detail::marking_tile::rows_of(from.count), begin, neutral, out_i, out_v, count, words);
}

} // namespace spar::kernel
