// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernels that reduce sparse or dense operands into a dense vector (SparCML, section 5.1).
#pragma once

#include <spar/core/coo_span.hpp>
#include <spar/core/op.hpp>
#include <spar/storage/kernel/bits.hpp>
#include <spar/storage/kernel/slice.hpp>

#include <cstddef>
#include <cstdint>

namespace spar::inline v0_1::kernel {

namespace detail {

/// The number of entries that `for_entries` tests at once. If their indices are consecutive, the entries are processed
/// like dense values.
inline constexpr std::size_t dense_block = 16;
/// The number of values in the inner loop of a pointwise kernel. The number is constant, because GCC's -O2 vectorises
/// only loops of constant length, and exceeds 16, because GCC's -O3 unrolls loops of 16 values or fewer before it can
/// vectorise them.
inline constexpr std::size_t pointwise_block = 32;

/// Calls `run(offset, values)` for each block of `dense_block` entries with consecutive indices, and `f(offset, value)`
/// for every other entry. The offset is the index of the entry, or of the first entry of the block, minus `begin`.
template <class T, class Index, class F, class Run>
[[gnu::always_inline]] inline void for_entries(coo_span<T, Index> stream, std::uint64_t begin, F f, Run run) {
  const Index* indices = stream.indices.data();
  const T* values = stream.values.data();
  const std::size_t count = stream.size();
  std::size_t e = 0;
  for (; e + dense_block <= count; e += dense_block) {
    const auto first = static_cast<std::size_t>(indices[e] - begin);
    // Because the indices are sorted and unique, the difference between the first and the last index shows whether all
    // indices between them are present.
    if (indices[e + dense_block - 1] - indices[e] == dense_block - 1) {
      run(first, values + e);
    } else {
      for (std::size_t b = 0; b < dense_block; ++b) f(static_cast<std::size_t>(indices[e + b] - begin), values[e + b]);
    }
  }
  for (; e < count; ++e) f(static_cast<std::size_t>(indices[e] - begin), values[e]);
}

} // namespace detail

/// Reduces the entries (i, v) of `stream` into a dense array: `dense[i - begin] = op(dense[i - begin], v)`. Each index
/// i must be at least `begin`, and below `begin` + the length of `dense`.
template <element T, index_type Index, reduction<T> Op>
[[gnu::noinline]] void scatter(coo_span<T, Index> stream, std::uint64_t begin, T* __restrict dense, Op op) {
  detail::for_entries(
      stream, begin, [&](std::size_t at, T value) { dense[at] = op(dense[at], value); },
      [&](std::size_t at, const T* __restrict values) {
        T* __restrict out = dense + at;
        for (std::size_t b = 0; b < detail::dense_block; ++b) out[b] = op(out[b], values[b]);
      });
}

/// Stores the entries (i, v) of `stream` in a dense array: `dense[i - begin] = v`. Each index i must be at least
/// `begin`, and below `begin` + the length of `dense`.
template <element T, index_type Index>
[[gnu::noinline]] void scatter_assign(coo_span<T, Index> stream, std::uint64_t begin, T* __restrict dense) {
  detail::for_entries(
      stream, begin, [&](std::size_t at, T value) { dense[at] = value; },
      [&](std::size_t at, const T* __restrict values) { detail::copy<T>(dense + at, values, detail::dense_block); });
}

/// Copies values of a dense array: `out[e] = dense[indices[e]]` for e < count. `out` must not overlap `dense`.
template <element T, index_type Index>
[[gnu::noinline]] void gather(const T* __restrict dense, const Index* __restrict indices, std::size_t count,
                              T* __restrict out) {
  for (std::size_t e = 0; e < count; ++e) out[e] = dense[indices[e]];
}

/// Writes all n values of a dense array: `dense[i] = v` for each entry (i, v) of `stream`, and `absent` everywhere
/// else. The indices must ascend and be below n. Writes one window of 64 KiB after the other, so that the entries of a
/// window are stored while it is in the cache.
template <element T, index_type Index>
[[gnu::noinline]] void write_dense(coo_span<T, Index> stream, T absent, T* __restrict dense, std::size_t n) {
  constexpr std::size_t window = sizeof(T) < 65536 ? 65536 / sizeof(T) : 1;
  for (std::size_t begin = 0; begin < n; begin += window) {
    const std::size_t length = n - begin < window ? n - begin : window;
    detail::fill(dense + begin, length, absent);
    const std::size_t here = lower_bound(stream.indices, begin + length);
    scatter_assign(stream.subspan(0, here), begin, dense + begin);
    stream = stream.subspan(here, stream.size() - here);
  }
}

/// Computes `out[e] = op(left[e], right[e])` for all e in [0, n). `out` must overlap neither operand.
template <element T, reduction<T> Op>
[[gnu::noinline]] void combine(T* __restrict out, const T* __restrict left, const T* __restrict right, std::size_t n,
                               Op op) {
  std::size_t e = 0;
  for (; e + detail::pointwise_block <= n; e += detail::pointwise_block)
    for (std::size_t b = 0; b < detail::pointwise_block; ++b) out[e + b] = op(left[e + b], right[e + b]);
  for (; e < n; ++e) out[e] = op(left[e], right[e]);
}

/// Computes `inout[e] = op(inout[e], right[e])` for all e in [0, n), using the member `op.reduce(inout, right, n)` if
/// the operation has this member.
template <element T, reduction<T> Op>
[[gnu::noinline]] void reduce(T* __restrict inout, const T* __restrict right, std::size_t n, Op op) {
  if constexpr (requires { op.reduce(inout, right, n); }) return op.reduce(inout, right, n);
  std::size_t e = 0;
  for (; e + detail::pointwise_block <= n; e += detail::pointwise_block)
    for (std::size_t b = 0; b < detail::pointwise_block; ++b) inout[e + b] = op(inout[e + b], right[e + b]);
  for (; e < n; ++e) inout[e] = op(inout[e], right[e]);
}

/// Computes `inout[e] = op(left[e], inout[e])` for all e in [0, n), using the member `op.reduce_left(inout, left, n)`
/// if the operation has this member.
template <element T, reduction<T> Op>
[[gnu::noinline]] void reduce_left(T* __restrict inout, const T* __restrict left, std::size_t n, Op op) {
  if constexpr (requires { op.reduce_left(inout, left, n); }) return op.reduce_left(inout, left, n);
  std::size_t e = 0;
  for (; e + detail::pointwise_block <= n; e += detail::pointwise_block)
    for (std::size_t b = 0; b < detail::pointwise_block; ++b) inout[e + b] = op(left[e + b], inout[e + b]);
  for (; e < n; ++e) inout[e] = op(left[e], inout[e]);
}

} // namespace spar::inline v0_1::kernel
