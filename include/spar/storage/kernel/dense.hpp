// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernels that reduce sparse or dense operands into a dense vector, or find the nonzeros of a dense vector (SparCML,
// section 5.1).
#pragma once

#include <spar/core/coo_span.hpp>
#include <spar/core/op.hpp>
#include <spar/storage/kernel/bits.hpp>

#include <cstddef>
#include <cstdint>

namespace spar::kernel {

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

/// Returns whether `value` is neither +0 nor -0; NaN, infinities and denormals count as nonzero.
template <class T>
[[gnu::always_inline]] inline bool is_nonzero(T value) {
  if constexpr (is_floating<T>)
    return static_cast<bits_of<T>>(std::bit_cast<bits_of<T>>(value) << 1) != 0;
  else
    return !(value == T{});
}

/// Returns a mask of 64 values: bit e is set if `values[e]` is nonzero. Stores the result of each comparison as a byte,
/// so that compilers vectorise the loop.
template <class T>
inline std::uint64_t nonzero_mask(const T* __restrict values) {
  std::uint8_t bytes[64];
  for (std::size_t e = 0; e < 64; ++e) bytes[e] = static_cast<std::uint8_t>(is_nonzero(values[e]));
  return mask_of_bytes(bytes);
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

/// Returns the number of values that are neither +0 nor -0.
template <element T>
std::size_t count_nonzero(const T* dense, std::size_t n) {
  std::size_t count = 0, e = 0;
  for (; e + 64 <= n; e += 64) {
    std::uint32_t in_block = 0;
    for (std::size_t b = 0; b < 64; ++b) in_block += static_cast<std::uint32_t>(detail::is_nonzero(dense[e + b]));
    count += in_block;
  }
  for (; e < n; ++e) count += static_cast<std::size_t>(detail::is_nonzero(dense[e]));
  return count;
}

/// Writes the entry `(begin + e, dense[e])` for every value that is neither +0 nor -0, in ascending order of e. Returns
/// the number of entries. The output arrays need room for `count_nonzero(dense, n)` entries.
template <element T, index_type Index>
std::size_t gather_nonzero(const T* dense, std::size_t n, std::uint64_t begin, Index* __restrict out_i,
                           T* __restrict out_v) {
  std::uint64_t words[detail::position_words];
  std::uint16_t positions[detail::position_room];
  std::size_t written = 0, e = 0;
  while (n - e >= 64) {
    const std::size_t blocks = (n - e) / 64 < detail::position_words ? (n - e) / 64 : detail::position_words;
    for (std::size_t w = 0; w < blocks; ++w) words[w] = detail::nonzero_mask(dense + e + 64 * w);
    const std::size_t found = detail::bit_positions(words, blocks, positions);
    for (std::size_t f = 0; f < found; ++f) {
      out_i[written + f] = static_cast<Index>(begin + e + positions[f]);
      out_v[written + f] = dense[e + positions[f]];
    }
    written += found;
    e += 64 * blocks;
  }
  for (; e < n; ++e) {
    if (!detail::is_nonzero(dense[e])) continue;
    out_i[written] = static_cast<Index>(begin + e);
    out_v[written++] = dense[e];
  }
  return written;
}

} // namespace spar::kernel
