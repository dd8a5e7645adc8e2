// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sorts entries in device memory by their indices, and reduces the values of equal indices in the order in which they
// are given. The device's version of `coalesce`.
#pragma once

#include <spar/core/element.hpp>
#include <spar/core/op.hpp>
#include <spar/cuda/kernel/dense.cuh>
#include <spar/cuda/kernel/language.cuh>
#include <spar/cuda/kernel/partition.cuh>
#include <spar/cuda/kernel/tiles.cuh>

#ifdef __CUDACC__
#include <cub/device/device_radix_sort.cuh>
#endif

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace spar::inline v0_1 {

#ifdef __CUDACC__
namespace detail {

// The sort is CUB's, because a stable sort has only one result, whatever its algorithm. A program that runs kernels on
// the host defines these two functions as well (see language.cuh).

/// The bytes of device memory that `start_sort` needs.
template <class Key, class Payload>
std::size_t sort_bytes(std::uint64_t count, unsigned bits) {
  std::size_t bytes = 0;
  check_cuda(cub::DeviceRadixSort::SortPairs(nullptr, bytes, static_cast<const Key*>(nullptr),
                                             static_cast<Key*>(nullptr), static_cast<const Payload*>(nullptr),
                                             static_cast<Payload*>(nullptr), count, 0, static_cast<int>(bits)),
             "cub::DeviceRadixSort::SortPairs");
  return bytes;
}

/// Starts to sort `count` pairs of a key and a payload by the lowest `bits` bits of the keys. Pairs with equal keys
/// keep their order. The outputs must not overlap the inputs.
template <class Key, class Payload>
void start_sort(const Key* keys, const Payload* payloads, std::uint64_t count, unsigned bits, Key* sorted_keys,
                Payload* sorted_payloads, void* memory, std::size_t bytes, cudaStream_t stream) {
  check_cuda(cub::DeviceRadixSort::SortPairs(memory, bytes, keys, sorted_keys, payloads, sorted_payloads, count, 0,
                                             static_cast<int>(bits), stream),
             "cub::DeviceRadixSort::SortPairs");
}

} // namespace detail
#endif

namespace kernel {

/// What `start_coalesce` finds.
struct coalesced_entries {
  std::uint64_t count;        ///< the number of different indices
  std::uint32_t out_of_range; ///< 1 if an index is not below the dimension; the entries are then unspecified
};

namespace detail {

template <class Index>
struct exceeds {
  std::uint64_t n;
  __device__ bool operator()(Index index) const { return index >= n; }
};

struct fold_memory {
  partition_tile::memory tile;
  std::uint32_t begins[partition_tile::warps][partition_tile::rows]; // of each warp; see `fold_repeated`
};

/// Each block has a tile of entries, whose indices ascend or repeat. A thread reduces the values of each index of which
/// it has the first entry, also those in later tiles.
template <class T, class Index, class Op>
__global__ void __launch_bounds__(partition_tile::threads)
    fold_repeated(device_coo<T, Index> from, Op op, Index* out_i, T* out_v, std::uint64_t* count,
                  std::uint64_t* words) {
  using tile = partition_tile;
  auto& memory = spar::detail::block_memory<fold_memory>();
  auto& shared = memory.tile;
  const spar::detail::tiles all(words);
  const std::uint64_t number = all.take(shared.state), first = number * tile::values;
  const partition_part<T, Index> part(from, 0, first);
  const unsigned lane = spar::detail::lane_of_thread();
  // Bit l of a row: whether lane l's entry is the first one of its index. In shared memory, because the loop below,
  // which is too long to be unrolled, could not index registers.
  auto& begins = memory.begins[spar::detail::warp_of_thread()];
  SPAR_UNROLL
  for (unsigned row = 0; row < tile::rows; ++row) {
    const std::uint64_t e = first + part.at(row);
    const bool is_first = part.has(row) && (e == 0 || from.indices[e] != from.indices[e - 1]);
    const std::uint32_t first_ones = __ballot_sync(spar::detail::whole_warp, is_first);
    if (lane == 0) begins[row] = first_ones;
  }
  const std::uint32_t total = count_marked(begins, shared);
  const std::uint64_t base = all.outputs_before(number, total, shared.state); // has a barrier
  for (unsigned row = 0; row < tile::rows; ++row) {
    if ((begins[row] >> lane & 1U) == 0) continue;
    std::uint64_t e = first + part.at(row);
    const Index index = from.indices[e];
    T value = from.values[e];
    // The entries of an index are reduced one after the other, but several of them are read at the same time.
    constexpr unsigned at_once = 8;
    for (bool repeats = e + 1 < from.count && from.indices[e + 1] == index; repeats;) {
      Index next[at_once];
      T addend[at_once];
      SPAR_UNROLL
      for (unsigned i = 0; i < at_once; ++i) {
        const std::uint64_t at = e + 1 + i < from.count ? e + 1 + i : e; // beyond the end, an index that has been read
        next[i] = from.indices[at];
        addend[i] = from.values[at];
      }
      SPAR_UNROLL
      for (unsigned i = 0; i < at_once; ++i) {
        repeats = repeats && e + 1 + i < from.count && next[i] == index;
        if (repeats) value = op(value, addend[i]);
      }
      e += at_once;
    }
    const std::uint64_t to = base + rank_of(begins, row, shared);
    out_i[to] = index;
    out_v[to] = value;
  }
  if (number + 1 == gridDim.x && threadIdx.x == 0) *count = base + total;
}

/// The device memory of `start_coalesce`, in bytes from its beginning.
template <class T, class Index>
struct coalesce_plan {
  using payload = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>; // the sort moves bits

  coalesce_plan(std::uint64_t count, std::uint64_t n)
      : bits(n < 2 ? 1 : static_cast<unsigned>(std::bit_width(n - 1))),
        words(spar::detail::tiles::words(partition_tile::count(count))), values(words * sizeof(std::uint64_t)),
        indices(values + (count + 1) / 2 * 2 * sizeof(T)), temporary(indices + (count + 1) / 2 * 2 * sizeof(Index)),
        temporary_bytes(spar::detail::sort_bytes<Index, payload>(count, bits)) {}

  unsigned bits; // of the indices below n
  std::uint64_t words;
  std::size_t values, indices, temporary, temporary_bytes;
};

} // namespace detail

/// The bytes of device memory, aligned for any type, that `start_coalesce` needs for `count` entries of a vector of n
/// values.
template <element T, index_type Index>
std::size_t coalesce_bytes(std::uint64_t count, std::uint64_t n) {
  const detail::coalesce_plan<T, Index> plan(count, n);
  return plan.temporary + plan.temporary_bytes;
}

/// Starts kernels that write the entries of `from`, whose indices may have any order and may repeat, to `out_i` and
/// `out_v` in ascending order of the indices, with the bits of `coalesce`: the values of an index are reduced by `op`
/// in the order in which they are given, starting with the first. The outputs need room for `from.count` entries, and
/// must not overlap `from`. Writes the number of entries to `*found`, and whether an index is not below n. All pointers
/// point to device memory. The device must be able to call the operator of `op`. One thread reduces the entries of an
/// index, so an index with very many entries takes long.
template <element T, index_type Index, reduction<T> Op>
void start_coalesce(device_coo<T, Index> from, std::uint64_t n, Index* out_i, T* out_v, Op op, coalesced_entries* found,
                    void* memory, cudaStream_t stream) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "a device coalesces values of 4 or 8 bytes");
  spar::detail::clear(found, sizeof *found, stream);
  if (from.count == 0) return;
  const detail::coalesce_plan<T, Index> plan(from.count, n);
  using payload = typename detail::coalesce_plan<T, Index>::payload;
  auto* const begin = static_cast<std::byte*>(memory);
  auto* const words = reinterpret_cast<std::uint64_t*>(begin);
  auto* const values = reinterpret_cast<T*>(begin + plan.values);
  auto* const indices = reinterpret_cast<Index*>(begin + plan.indices);
  start_find_any(from.indices, from.count, &found->out_of_range, detail::exceeds<Index>{n}, stream);
  spar::detail::start_sort(from.indices, reinterpret_cast<const payload*>(from.values), from.count, plan.bits, indices,
                           reinterpret_cast<payload*>(values), begin + plan.temporary, plan.temporary_bytes, stream);
  spar::detail::clear(words, plan.words * sizeof(std::uint64_t), stream);
  spar::detail::launch(detail::fold_repeated<T, Index, Op>, detail::partition_tile::count(from.count),
                       detail::partition_tile::threads, sizeof(detail::fold_memory), stream,
                       device_coo<T, Index>{indices, values, from.count}, op, out_i, out_v, &found->count, words);
}

} // namespace kernel

} // namespace spar::inline v0_1
