// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An owning, uninitialised array of trivially copyable elements in a memory space.
#pragma once

#include <spar/core/space.hpp>

#include <cstddef>
#include <memory_resource>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

namespace spar {

/// `size()` elements of T from a memory resource (a rank's pool; for `cuda` one that hands out device memory). Nothing
/// is initialised. Movable, not copyable.
template <class T, memory_space Space = host>
class buffer {
  static_assert(std::is_trivially_copyable_v<T>, "a buffer holds trivially copyable elements");

 public:
  /// No buffer is larger, so that sizes can be added and rounded without overflow.
  static constexpr std::size_t max_bytes = std::size_t{1} << 60;

  buffer() = default;
  /// Throws std::bad_alloc where there is not so much memory.
  buffer(std::pmr::memory_resource& memory, std::size_t size) : memory_(&memory), size_(size) {
    if (size > max_bytes / sizeof(T)) throw std::bad_alloc();
    if (size > 0) data_ = static_cast<T*>(memory.allocate(size * sizeof(T), alignof(T)));
  }
  buffer(buffer&& other) noexcept
      : memory_(other.memory_), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  buffer& operator=(buffer&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~buffer() {
    if (data_ != nullptr) give_back();
  }

  [[nodiscard]] T* data() noexcept { return data_; }
  [[nodiscard]] const T* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::span<T> span() noexcept { return {data_, size_}; }
  [[nodiscard]] std::span<const T> span() const noexcept { return {data_, size_}; }

 private:
  [[gnu::noinline]] void give_back() noexcept { memory_->deallocate(data_, size_ * sizeof(T), alignof(T)); }

  std::pmr::memory_resource* memory_ = nullptr;
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

} // namespace spar
