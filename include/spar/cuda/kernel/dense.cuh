// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Adds vectors in device memory, and writes entries into one. The device's versions of `kernel::combine` with `sum` and
// of `kernel::scatter_assign`.
#pragma once

#include <spar/core/element.hpp>
#include <spar/core/op.hpp>
#include <spar/cuda/kernel/language.cuh>
#include <spar/cuda/kernel/rows.cuh>

#include <cstdint>

namespace spar::kernel {

namespace detail {

template <class T>
__global__ void __launch_bounds__(spar::detail::row_tile::threads)
    add(const T* a, const T* b, std::uint64_t n, T* out) {
  spar::detail::for_rows(n, [&](std::uint64_t at) { out[at] = a == nullptr ? b[at] : sum{}(a[at], b[at]); });
}

template <class T, class Index>
__global__ void __launch_bounds__(spar::detail::row_tile::threads)
    scatter_assign(const Index* indices, const T* values, std::uint64_t count, T* dense) {
  spar::detail::for_rows(count, [&](std::uint64_t e) { dense[indices[e]] = values[e]; });
}

} // namespace detail

/// Starts a kernel that sets out[i] to a[i] + b[i] for i < n, or to b[i] if `a` is null. All pointers point to device
/// memory.
template <element T>
void start_add(const T* a, const T* b, std::uint64_t n, T* out, cudaStream_t stream) {
  spar::detail::launch_rows(detail::add<T>, n, stream, a, b, n, out);
}

/// Starts a kernel that sets dense[indices[e]] to values[e] for e < count. The indices must be different. All pointers
/// point to device memory.
template <element T, index_type Index>
void start_scatter_assign(const Index* indices, const T* values, std::uint64_t count, T* dense, cudaStream_t stream) {
  spar::detail::launch_rows(detail::scatter_assign<T, Index>, count, stream, indices, values, count, dense);
}

} // namespace spar::kernel
