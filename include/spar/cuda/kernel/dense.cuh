// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Fills and combines vectors in device memory, writes entries to one, reduces entries into one, and reads values at
// indices. The device's versions of `kernel::combine`, `kernel::scatter`, `kernel::scatter_assign`, `kernel::gather`,
// `kernel::scatter_difference` and `put_back_unlisted`.
#pragma once

#include <spar/core/element.hpp>
#include <spar/core/op.hpp>
#include <spar/cuda/kernel/block.cuh>
#include <spar/cuda/kernel/language.cuh>
#include <spar/cuda/kernel/rows.cuh>
#include <spar/cuda/kernel/tiles.cuh>
#include <spar/storage/kernel/rounding_error.hpp>

#include <concepts>
#include <cstdint>

namespace spar::inline v0_1::kernel {

/// Up to four streams of entries in device memory, one after the other.
template <element T, index_type Index>
struct entry_pieces {
  static constexpr unsigned most = 4;

  const Index* indices[most] = {};
  const T* values[most] = {};
  std::uint64_t begins[most + 1] = {}; // the number of entries in the pieces before each, and in all `pieces`
  unsigned pieces = 0;

  void add(const Index* its_indices, const T* its_values, std::uint64_t count) {
    if (count == 0) return;
    indices[pieces] = its_indices;
    values[pieces] = its_values;
    begins[pieces + 1] = begins[pieces] + count;
    ++pieces;
  }
  [[nodiscard]] std::uint64_t count() const { return begins[pieces]; }
};

namespace detail {

template <class T>
__global__ void __launch_bounds__(spar::detail::row_tile::threads) fill_rows(T* x, std::uint64_t n, T value) {
  spar::detail::for_rows(n, [&](std::uint64_t at) { x[at] = value; });
}

template <class T>
__global__ void __launch_bounds__(spar::detail::row_tile::threads)
    add(const T* a, const T* b, std::uint64_t n, T* out) {
  spar::detail::for_rows(n, [&](std::uint64_t at) { out[at] = a == nullptr ? b[at] : sum{}(a[at], b[at]); });
}

template <class T, class Op>
__global__ void __launch_bounds__(spar::detail::row_tile::threads)
    combine(const T* left, const T* right, std::uint64_t n, T* out, Op op) {
  spar::detail::for_rows(n, [&](std::uint64_t at) { out[at] = op(left[at], right[at]); });
}

template <class T, class Op>
__global__ void __launch_bounds__(spar::detail::row_tile::threads)
    finalize(T* x, std::uint64_t n, std::int64_t ranks, Op op) {
  const auto write = [&](std::uint64_t at, T value) { x[at] = op.finalize(value, ranks); };
  spar::detail::for_rows(n, [&](std::uint64_t at) { return x[at]; }, write);
}

template <class Test, class T>
__global__ void __launch_bounds__(spar::detail::row_tile::threads)
    find_any(const T* x, std::uint64_t n, std::uint32_t* found, Test test) {
  T value[spar::detail::row_tile::rows];
  SPAR_UNROLL
  for (unsigned row = 0; row < spar::detail::row_tile::rows; ++row) value[row] = x[spar::detail::row_position(row, n)];
  bool any = false;
  for (const T v : value) any = test(v) || any;
  if (any) *found = 1; // all threads write the same value
}

template <class T, class Index>
__global__ void __launch_bounds__(spar::detail::row_tile::threads)
    copy_entries(entry_pieces<T, Index> from, std::uint64_t n, Index* out_i, T* out_v) {
  struct entry {
    Index index;
    T value;
  };
  const auto read = [&](std::uint64_t e) {
    const Index* indices = from.indices[0];
    const T* values = from.values[0];
    std::uint64_t begin = 0;
    SPAR_UNROLL
    for (unsigned piece = 1; piece < from.most; ++piece) {
      if (piece < from.pieces && e >= from.begins[piece])
        indices = from.indices[piece], values = from.values[piece], begin = from.begins[piece];
    }
    return entry{indices[e - begin], values[e - begin]};
  };
  const auto write = [&](std::uint64_t e, const entry& x) { out_i[e] = x.index, out_v[e] = x.value; };
  spar::detail::for_rows(n, read, write);
}

template <class T, class Index>
__global__ void __launch_bounds__(spar::detail::row_tile::threads)
    scatter_assign(const Index* indices, const T* values, std::uint64_t count, std::uint64_t begin, T* dense) {
  spar::detail::for_rows(count, [&](std::uint64_t e) { dense[indices[e] - begin] = values[e]; });
}

/// The part of a list of ascending indices in which those of a block are, in shared memory.
struct block_range {
  std::uint64_t ends[2];

  /// Finds the indices in [begin, end). Two warps search at the same time.
  template <class Index>
  __device__ void find(const Index* indices, std::uint64_t count, std::uint64_t begin, std::uint64_t end) {
    if (const unsigned warp = spar::detail::warp_of_thread(); warp < 2) {
      const std::uint64_t bound = warp == 0 ? begin : end;
      const auto below = [&](std::uint64_t at) { return indices[at] < bound; };
      ends[warp] = spar::detail::partition_point_by_warp(0, count, below);
    }
    __syncthreads();
  }
};

/// A number of entries that a kernel gets as it is, or finds in device memory.
__device__ inline std::uint64_t entries_in(std::uint64_t count) { return count; }
__device__ inline std::uint64_t entries_in(const std::uint64_t* count) { return *count; }

/// A tile of `write_entries`, in shared memory.
template <class T>
struct written_tile {
  static constexpr unsigned threads = 256;
  static constexpr unsigned size = 32'768 / sizeof(T); // so large that the searches of other blocks hide one search

  T value[size];
  block_range entries;
};

/// Each block puts together the values of a tile in shared memory, so that each sector of the vector is written once.
template <class T, class Index, class Count>
__global__ void __launch_bounds__(written_tile<T>::threads)
    write_entries(const Index* indices, const T* values, Count count, std::uint64_t begin, T* dense, std::uint64_t n,
                  T absent) {
  using tile = written_tile<T>;
  auto& mine = spar::detail::block_memory<tile>();
  const std::uint64_t first = std::uint64_t{blockIdx.x} * tile::size;
  const auto size = static_cast<unsigned>(n - first < tile::size ? n - first : tile::size);
  for (unsigned at = threadIdx.x; at < size; at += tile::threads) mine.value[at] = absent;
  mine.entries.find(indices, entries_in(count), begin + first, begin + first + size); // has a barrier
  for (std::uint64_t e = mine.entries.ends[0] + threadIdx.x; e < mine.entries.ends[1]; e += tile::threads)
    mine.value[static_cast<unsigned>(indices[e] - begin - first)] = values[e];
  __syncthreads();
  for (unsigned at = threadIdx.x; at < size; at += tile::threads) dense[first + at] = mine.value[at];
}

/// A tile of `assign_unlisted`: `rows` entries of each thread, and the part of the list between the first and the last
/// index of these entries.
template <class Index>
struct unlisted_tile {
  static constexpr unsigned threads = 256, rows = 4;
  static constexpr std::uint64_t entries = threads * rows, room = 2 * entries;

  block_range part;
  Index list[room]; // a copy of the part, if it has at most `room` indices
};

template <class T, class Index, class Count>
__global__ void __launch_bounds__(unlisted_tile<Index>::threads)
    assign_unlisted(const Index* indices, const T* values, Count entries, const Index* listed, Count list_size,
                    T* dense) {
  using tile = unlisted_tile<Index>;
  const std::uint64_t count = entries_in(entries), listed_count = entries_in(list_size);
  if (blockIdx.x * tile::entries >= count) return;
  constexpr unsigned rows = tile::rows;
  auto& shared = spar::detail::block_memory<tile>();
  const std::uint64_t first = blockIdx.x * tile::entries;
  const std::uint64_t end = count - first < tile::entries ? count : first + tile::entries;
  Index index[rows];
  T value[rows];
  SPAR_UNROLL
  for (unsigned row = 0; row < rows; ++row) {
    const std::uint64_t at = first + row * tile::threads + threadIdx.x, e = at < end ? at : end - 1;
    index[row] = indices[e];
    value[row] = values[e];
  }
  shared.part.find(listed, listed_count, indices[first], std::uint64_t{indices[end - 1]} + 1);
  const Index* list = listed + shared.part.ends[0];
  const std::uint64_t length = shared.part.ends[1] - shared.part.ends[0];
  if (length <= tile::room) {
    for (std::uint64_t at = threadIdx.x; at < length; at += tile::threads) shared.list[at] = list[at];
    __syncthreads();
    list = shared.list;
  }
  // Searches for all rows at the same time, so that the reads of one search need not wait for those of another.
  std::uint64_t below[rows] = {}; // indices of the list that are known to be below that of the row
  std::uint64_t step = 1;
  while (step * 2 <= length) step *= 2;
  for (; step > 0; step /= 2) {
    SPAR_UNROLL
    for (unsigned row = 0; row < rows; ++row) {
      const std::uint64_t next = below[row] + step;
      if (next <= length && list[next - 1] < index[row]) below[row] = next;
    }
  }
  SPAR_UNROLL
  for (unsigned row = 0; row < rows; ++row) {
    const bool is_listed = below[row] < length && list[below[row]] == index[row];
    if (!is_listed) dense[index[row]] = value[row]; // beyond the end, the last entry again
  }
}

template <class T, class Index, class Op>
__global__ void __launch_bounds__(spar::detail::row_tile::threads)
    scatter(const Index* indices, const T* values, std::uint64_t count, std::uint64_t begin, T* dense, Op op) {
  spar::detail::for_rows(count, [&](std::uint64_t e) {
    T& value = dense[indices[e] - begin];
    value = op(value, values[e]);
  });
}

template <class T, class Index>
__global__ void __launch_bounds__(spar::detail::row_tile::threads)
    gather(const T* dense, const Index* indices, std::uint64_t count, T* out) {
  const auto write = [&](std::uint64_t e, T value) { out[e] = value; };
  spar::detail::for_rows(count, [&](std::uint64_t e) { return dense[indices[e]]; }, write);
}

template <class T, class Index>
__global__ void __launch_bounds__(spar::detail::row_tile::threads)
    scatter_difference(const Index* indices, const T* exact, const T* decoded, std::uint64_t count, T* dense) {
  spar::detail::for_rows(count, [&](std::uint64_t e) {
    T& value = dense[indices == nullptr ? e : indices[e]];
    value = with_error(value, exact[e], decoded[e]);
  });
}

} // namespace detail

/// Starts a kernel that sets each of n values in device memory to `value`.
template <element T>
void start_fill(T* x, std::uint64_t n, T value, cudaStream_t stream) {
  spar::detail::launch_rows(detail::fill_rows<T>, n, stream, x, n, value);
}

/// Starts a kernel that sets out[i] to a[i] + b[i] for i < n, or to b[i] if `a` is null. All pointers point to device
/// memory.
template <element T>
void start_add(const T* a, const T* b, std::uint64_t n, T* out, cudaStream_t stream) {
  spar::detail::launch_rows(detail::add<T>, n, stream, a, b, n, out);
}

/// Starts a kernel that sets out[i] to op(left[i], right[i]) for i < n. `out` may be `left` or `right`. All pointers
/// point to device memory. The device must be able to call the operator of `op`.
template <element T, reduction<T> Op>
void start_combine(const T* left, const T* right, std::uint64_t n, T* out, Op op, cudaStream_t stream) {
  spar::detail::launch_rows(detail::combine<T, Op>, n, stream, left, right, n, out, op);
}

/// Starts a kernel that replaces each of n values in device memory by `op.finalize(value, ranks)`.
template <element T, class Op>
void start_finalize(T* x, std::uint64_t n, std::int64_t ranks, Op op, cudaStream_t stream) {
  spar::detail::launch_rows(detail::finalize<T, Op>, n, stream, x, n, ranks, op);
}

/// Starts a kernel that sets `found` to 1 if `test(value)` is true for one of n values, and otherwise leaves `found` as
/// it is. Both pointers point to memory that the device can access.
template <element T, class Test>
void start_find_any(const T* x, std::uint64_t n, std::uint32_t* found, Test test, cudaStream_t stream) {
  spar::detail::launch_rows(detail::find_any<Test, T>, n, stream, x, n, found, test);
}

/// Starts a kernel that copies entries to `out_i` and `out_v`, which must not overlap them and point to device memory.
template <element T, index_type Index>
void start_copy_entries(const entry_pieces<T, Index>& from, Index* out_i, T* out_v, cudaStream_t stream) {
  spar::detail::launch_rows(detail::copy_entries<T, Index>, from.count(), stream, from, from.count(), out_i, out_v);
}

/// Starts a kernel that sets dense[indices[e] - begin] to values[e] for e < count. The indices must be distinct and at
/// least `begin`. All pointers point to device memory.
template <element T, index_type Index>
void start_scatter_assign(const Index* indices, const T* values, std::uint64_t count, std::uint64_t begin, T* dense,
                          cudaStream_t stream) {
  spar::detail::launch_rows(detail::scatter_assign<T, Index>, count, stream, indices, values, count, begin, dense);
}

/// Starts a kernel that sets dense[indices[e] - begin] to values[e] for e < count, and all other of the n values at
/// `dense` to `absent`. `count` is a number, or points to one in device memory. The indices must ascend strictly in
/// [begin, begin + n). All pointers point to device memory.
template <element T, index_type Index, class Count>
void start_write_entries(const Index* indices, const T* values, Count count, std::uint64_t begin, T* dense,
                         std::uint64_t n, T absent, cudaStream_t stream) {
  using tile = detail::written_tile<T>;
  if (n == 0) return;
  spar::detail::launch(detail::write_entries<T, Index, Count>, spar::detail::tiles_of(n, tile::size), tile::threads,
                       sizeof(tile), stream, indices, values, count, begin, dense, n, absent);
}

/// Starts a kernel that sets dense[indices[e]] to values[e] for e < count, unless the index is one of the
/// `listed_count` indices at `listed`. Both arrays of indices ascend strictly. All pointers point to device memory.
template <element T, index_type Index>
void start_assign_unlisted(const Index* indices, const T* values, std::uint64_t count, const Index* listed,
                           std::uint64_t listed_count, T* dense, cudaStream_t stream) {
  using tile = detail::unlisted_tile<Index>;
  if (count == 0) return;
  spar::detail::launch(detail::assign_unlisted<T, Index, std::uint64_t>, spar::detail::tiles_of(count, tile::entries),
                       tile::threads, sizeof(tile), stream, indices, values, count, listed, listed_count, dense);
}
/// The same for at most `most` entries; both counts are in device memory.
template <element T, index_type Index>
void start_assign_unlisted(const Index* indices, const T* values, const std::uint64_t* count, std::uint64_t most,
                           const Index* listed, const std::uint64_t* listed_count, T* dense, cudaStream_t stream) {
  using tile = detail::unlisted_tile<Index>;
  if (most == 0) return;
  spar::detail::launch(detail::assign_unlisted<T, Index, const std::uint64_t*>,
                       spar::detail::tiles_of(most, tile::entries), tile::threads, sizeof(tile), stream, indices,
                       values, count, listed, listed_count, dense);
}

/// Starts a kernel that replaces the value d = dense[indices[e] - begin] by op(d, values[e]) for e < count. The indices
/// must be distinct and at least `begin`. All pointers point to device memory. The device must be able to call the
/// operator of `op`.
template <element T, index_type Index, reduction<T> Op>
void start_scatter(const Index* indices, const T* values, std::uint64_t count, std::uint64_t begin, T* dense, Op op,
                   cudaStream_t stream) {
  spar::detail::launch_rows(detail::scatter<T, Index, Op>, count, stream, indices, values, count, begin, dense, op);
}

/// Starts a kernel that sets out[e] to dense[indices[e]] for e < count. `out` must not overlap `dense`. All pointers
/// point to device memory.
template <element T, index_type Index>
void start_gather(const T* dense, const Index* indices, std::uint64_t count, T* out, cudaStream_t stream) {
  spar::detail::launch_rows(detail::gather<T, Index>, count, stream, dense, indices, count, out);
}

/// Starts a kernel that adds exact[e] - decoded[e], if it is finite, to dense[indices[e]], or to dense[e] if `indices`
/// is null, for e < count, rounded once. The indices must be distinct. All pointers point to device memory.
template <index_type Index, std::floating_point T>
void start_scatter_difference(const Index* indices, const T* exact, const T* decoded, std::uint64_t count, T* dense,
                              cudaStream_t stream) {
  spar::detail::launch_rows(detail::scatter_difference<T, Index>, count, stream, indices, exact, decoded, count, dense);
}

} // namespace spar::inline v0_1::kernel
