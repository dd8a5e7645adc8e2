// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An array in device memory.
#pragma once

#include <spar/cuda/runtime.hpp>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace spar::detail {

/// An array in device memory that keeps its memory for later uses. Its values are not initialised.
template <class T>
class device_array {
 public:
  device_array() = default;
  device_array(const device_array&) = delete;
  ~device_array() { cudaFree(data_); } // waits for the work that uses the memory

  void swap(device_array& other) noexcept { std::swap(data_, other.data_), std::swap(size_, other.size_); }

  /// Makes room for `size` values. The values of a smaller array are lost. Throws `cuda_error` if there is no memory.
  void reserve(std::uint64_t size) {
    if (has_room(size)) return;
    cudaFree(std::exchange(data_, nullptr));
    size_ = 0;
    void* memory = nullptr;
    check_cuda(cudaMalloc(&memory, static_cast<std::size_t>(size) * sizeof(T)), "cudaMalloc");
    data_ = static_cast<T*>(memory);
    size_ = size;
  }
  [[nodiscard]] bool has_room(std::uint64_t size) const noexcept { return size <= size_; }
  [[nodiscard]] T* data() const noexcept { return data_; }

 private:
  T* data_ = nullptr;
  std::uint64_t size_ = 0;
};

} // namespace spar::detail
