// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A vector in device memory, with the CUDA stream that orders the work on it.
#pragma once

#include <spar/core/element.hpp>
#include <spar/core/memory/space.hpp>

#include <cuda_runtime_api.h>

#include <cstdint>

namespace spar::inline v0_1 {

/// Refers to `size` values in device memory. A collective reads the values after all work that was in `stream` when the
/// collective was called; work that is put into `stream` after the collective has returned sees the results. The values
/// must not be used in other ways during the collective.
template <element T>
struct device_span {
  using space = cuda; ///< where the values are

  T* data = nullptr;             ///< the first value, in device memory
  std::uint64_t size = 0;        ///< the number of values
  cudaStream_t stream = nullptr; ///< orders the work on the values; nullptr is the default stream

  device_span() = default;
  /// Refers to `count` values from `first` on, ordered by the stream `order`.
  device_span(T* first, std::uint64_t count, cudaStream_t order = nullptr) noexcept
      : data(first), size(count), stream(order) {}
};

/// Entries in device memory, whose number is there as well. Kernels that are put into the stream of the call that has
/// made them may read them, before the next call.
template <element T, index_type Index>
struct ordered_entries {
  const Index* indices = nullptr;       ///< ascending
  const T* values = nullptr;            ///< the values at these indices
  const std::uint64_t* count = nullptr; ///< the number of entries
  std::uint64_t room = 0;               ///< the largest number of entries that a call can make
};

} // namespace spar::inline v0_1
