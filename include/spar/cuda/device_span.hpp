// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A vector in device memory, with the CUDA stream that orders the work on it.
#pragma once

#include <spar/core/element.hpp>
#include <spar/core/memory/space.hpp>

#include <cuda_runtime_api.h>

#include <concepts>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace spar::inline v0_1 {

namespace detail {

template <class Vector>
using device_pointer_of = decltype(std::declval<Vector&>().data().get());
/// Has a pointer to device memory, such as thrust::device_ptr, which host code cannot dereference by mistake.
template <class Vector>
concept device_vector = std::is_pointer_v<device_pointer_of<Vector>> && requires(Vector& v) { v.size(); };

} // namespace detail

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
  /// Refers to the values of a `thrust::device_vector<T>`, or of another vector whose `data()` is a pointer type of a
  /// device with a member `get()`, ordered by the stream `order`.
  template <detail::device_vector Vector>
    requires std::same_as<detail::device_pointer_of<Vector>, T*>
  explicit device_span(Vector& values, cudaStream_t order = nullptr) noexcept
      : data(values.data().get()), size(values.size()), stream(order) {}
  /// Refers to `count` values from `first` on, ordered by the stream `order`.
  device_span(T* first, std::uint64_t count, cudaStream_t order = nullptr) noexcept
      : data(first), size(count), stream(order) {}
};

/// Deduces the type of the values of a vector in device memory, `values`, ordered by the stream `order`.
template <detail::device_vector Vector>
device_span(Vector& values, cudaStream_t order = nullptr)
    -> device_span<std::remove_pointer_t<detail::device_pointer_of<Vector>>>;

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
