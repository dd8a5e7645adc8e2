// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Memory resources for buffers in device memory and in page-locked host memory, and an array in device memory.
#pragma once

#include <spar/core/memory/pool.hpp>
#include <spar/cuda/runtime.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <unordered_map>
#include <utility>
#include <vector>

namespace spar::inline v0_1 {

/// Recycles device memory that is used in the order of one stream: a block that is given back may be used again at
/// once, because the work on its new contents begins after the work on the old ones. A request gets the smallest free
/// block that is large enough and has at most twice the size. Keeps all blocks until it is destroyed. Unlike in a
/// `pool`, all records are in host memory. For one thread at a time. Throws `cuda_error` if there is no memory.
class device_pool final : public std::pmr::memory_resource {
  using classes = detail::size_classes;

 public:
  /// What the owner of a pool is asked and told.
  struct owner {
    void (*allocates)(void* self) noexcept = nullptr; ///< called before each allocation from CUDA
    bool (*retires)(void* self) noexcept = nullptr;   ///< whether a block that is given back must not be used again
    void* self = nullptr;                             ///< the argument of both functions
  };

  device_pool() = default;
  /// Creates a pool that calls the functions of its owner `of`.
  explicit device_pool(const owner& of) noexcept : owner_(of) {}
  device_pool(const device_pool&) = delete;
  ~device_pool() override {
    for (const auto& [block, size_class] : class_of_) cudaFree(block);
  }

 private:
  void* do_allocate(std::size_t bytes, std::size_t) override {
    const std::size_t size_class = classes::of(bytes);
    for (std::size_t larger = size_class; larger < std::min(size_class + 5, classes::count); ++larger) {
      std::vector<void*>& free = free_[larger];
      if (free.empty()) continue;
      void* const block = free.back();
      free.pop_back();
      return block;
    }
    free_[size_class].reserve(++made_[size_class]); // so that giving back cannot fail
    if (owner_.allocates != nullptr) owner_.allocates(owner_.self);
    void* block = nullptr;
    detail::check_cuda(cudaMalloc(&block, classes::capacity(size_class)), "cudaMalloc");
    try {
      class_of_.emplace(block, size_class);
    } catch (...) {
      cudaFree(block);
      throw;
    }
    return block;
  }
  void do_deallocate(void* block, std::size_t, std::size_t) noexcept override {
    if (owner_.retires != nullptr && owner_.retires(owner_.self)) return; // freed with the pool
    free_[class_of_.find(block)->second].push_back(block);
  }
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  owner owner_;
  std::unordered_map<void*, std::size_t> class_of_; // of each block
  classes::table<std::vector<void*>> free_;
  classes::table<std::size_t> made_{};
};

namespace detail {

/// Allocates page-locked host memory: an upstream resource for a `pool`.
class pinned_resource final : public std::pmr::memory_resource {
 public:
  explicit pinned_resource(const device_pool::owner& of) noexcept : owner_(of) {}

 private:
  void* do_allocate(std::size_t bytes, std::size_t) override {
    if (owner_.allocates != nullptr) owner_.allocates(owner_.self);
    void* block = nullptr;
    check_cuda(cudaMallocHost(&block, bytes), "cudaMallocHost");
    return block;
  }
  void do_deallocate(void* block, std::size_t, std::size_t) noexcept override { cudaFreeHost(block); }
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  device_pool::owner owner_;
};

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
  /// Makes the array one of `values`, and waits for the copy. Throws `cuda_error` if CUDA fails.
  void assign(const std::vector<T>& values) {
    reserve(values.size());
    check_cuda(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
    check_cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize"); // a short copy may still be on its way
  }
  [[nodiscard]] bool has_room(std::uint64_t size) const noexcept { return size <= size_; }
  [[nodiscard]] T* data() const noexcept { return data_; }

 private:
  T* data_ = nullptr;
  std::uint64_t size_ = 0;
};

} // namespace detail

} // namespace spar::inline v0_1
