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

namespace detail {

/// No array is larger, so that sizes can be added and rounded without overflow.
inline constexpr std::size_t max_bytes = std::size_t{1} << 60;

/// Memory for an array; a null pointer for an empty one. Throws std::bad_alloc where there is not so much. Out of line:
/// compilers unfold a call of a memory resource into much code.
[[gnu::noinline]] inline void* take_array(std::pmr::memory_resource& memory, std::size_t count, std::size_t size,
                                          std::size_t align) {
  if (count > max_bytes / size) throw std::bad_alloc();
  return count == 0 ? nullptr : memory.allocate(count * size, align);
}

} // namespace detail

/// `size()` elements of T from a memory resource (a rank's pool; for `cuda` one that hands out device memory). Nothing
/// is initialised. Movable, not copyable.
template <class T, memory_space Space = host>
class buffer {
  static_assert(std::is_trivially_copyable_v<T>, "a buffer holds trivially copyable elements");

 public:
  buffer() = default;
  /// Throws std::bad_alloc where there is not so much memory.
  buffer(std::pmr::memory_resource& memory, std::size_t size)
      : memory_(&memory), data_(static_cast<T*>(detail::take_array(memory, size, sizeof(T), alignof(T)))), size_(size) {
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
