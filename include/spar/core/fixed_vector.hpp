// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A vector whose capacity is given once: its elements never move, so they need not be movable.
#pragma once

#include <spar/core/buffer.hpp>

#include <cstddef>
#include <memory_resource>
#include <new>
#include <span>
#include <utility>

namespace spar {

/// Up to `capacity` elements in memory of a resource. Adding more than that is undefined.
template <class T>
class fixed_vector {
 public:
  fixed_vector(std::pmr::memory_resource& memory, std::size_t capacity)
      : memory_(&memory), data_(static_cast<T*>(detail::take_array(memory, capacity, sizeof(T), alignof(T)))),
        capacity_(capacity) {}
  fixed_vector(const fixed_vector&) = delete;
  [[gnu::noinline]] ~fixed_vector() {
    clear();
    if (data_ != nullptr) memory_->deallocate(data_, capacity_ * sizeof(T), alignof(T));
  }

  template <class... Args>
  T& emplace_back(Args&&... args) {
    T* added = ::new (static_cast<void*>(data_ + size_)) T(std::forward<Args>(args)...);
    ++size_;
    return *added;
  }
  void clear() noexcept {
    while (size_ > 0) data_[--size_].~T();
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] T& operator[](std::size_t i) noexcept { return data_[i]; }
  [[nodiscard]] const T& operator[](std::size_t i) const noexcept { return data_[i]; }
  [[nodiscard]] T* begin() noexcept { return data_; }
  [[nodiscard]] T* end() noexcept { return data_ + size_; }
  [[nodiscard]] const T* begin() const noexcept { return data_; }
  [[nodiscard]] const T* end() const noexcept { return data_ + size_; }
  [[nodiscard]] std::span<const T> span() const noexcept { return {data_, size_}; }

 private:
  std::pmr::memory_resource* memory_;
  T* data_;
  std::size_t size_ = 0;
  std::size_t capacity_;
};

} // namespace spar
