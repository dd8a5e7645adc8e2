// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Copies between contiguous values and values with gaps between them.
#pragma once

#include <spar/core/compiler.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace spar::inline v0_1::kernel {

/// The largest number of dimensions of values with gaps.
inline constexpr std::size_t max_dimensions = 8;

/// Where values with gaps are: the value with the indices i_0, i_1, .. is i_0 * strides[0] + i_1 * strides[1] + ..
/// values after the first one. The last dimension is the innermost one. Without dimensions, there is a single value.
struct strided_shape {
  std::size_t dimensions = 0;
  std::array<std::uint64_t, max_dimensions> extents{};
  std::array<std::int64_t, max_dimensions> strides{};
};

/// Calls `run(first, stride, count, offset)` for each row of the innermost dimension of `shape`, which has no extent
/// of 0: the `count` values of the row, of which the first is `first` values after the base, and `offset` values
/// precede in all rows before.
template <class Run>
[[gnu::always_inline]] inline void for_rows(const strided_shape& shape, Run run) {
  const std::size_t outer = shape.dimensions == 0 ? 0 : shape.dimensions - 1;
  const std::uint64_t count = shape.dimensions == 0 ? 1 : shape.extents[outer];
  const std::int64_t stride = shape.dimensions == 0 ? 1 : shape.strides[outer];
  std::array<std::uint64_t, max_dimensions> at{};
  std::int64_t first = 0;
  for (std::uint64_t offset = 0;; offset += count) {
    run(first, stride, static_cast<std::size_t>(count), static_cast<std::size_t>(offset));
    std::size_t d = outer;
    for (; d > 0; --d) {
      first += shape.strides[d - 1];
      if (++at[d - 1] < shape.extents[d - 1]) break;
      first -= shape.strides[d - 1] * static_cast<std::int64_t>(shape.extents[d - 1]);
      at[d - 1] = 0;
    }
    if (d == 0) return;
  }
}

/// Copies the values of `shape`, whose first one is at `base`, to `out`, one after the other.
template <class T>
[[gnu::noinline]] void pack_strided(const T* base, const strided_shape& shape, T* __restrict out) {
  for_rows(shape, [=](std::int64_t first, std::int64_t stride, std::size_t count, std::size_t offset) {
    if (stride == 1) {
      std::memcpy(out + offset, base + first, count * sizeof(T));
      return;
    }
    const T* from = base + first;
    for (std::size_t i = 0; i < count; ++i) out[offset + i] = from[static_cast<std::int64_t>(i) * stride];
  });
}

/// Copies contiguous values from `in` to their places in `shape`, whose first value is at `base`.
template <class T>
[[gnu::noinline]] void unpack_strided(const T* __restrict in, const strided_shape& shape, T* base) {
  for_rows(shape, [=](std::int64_t first, std::int64_t stride, std::size_t count, std::size_t offset) {
    if (stride == 1) {
      std::memcpy(base + first, in + offset, count * sizeof(T));
      return;
    }
    T* const to = base + first;
    for (std::size_t i = 0; i < count; ++i) to[static_cast<std::int64_t>(i) * stride] = in[offset + i];
  });
}

} // namespace spar::inline v0_1::kernel
