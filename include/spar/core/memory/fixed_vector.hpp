// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A vector with a fixed capacity, whose elements never move and so need not be movable.
#pragma once

#include <spar/core/memory/buffer.hpp>

#include <cstddef>
#include <memory_resource>
#include <new>
#include <span>
#include <utility>

namespace spar::inline v0_1 {

/// A vector of up to `capacity` elements in memory from a memory resource. Adding more than `capacity` elements is
/// undefined behaviour.
template <class T>
class fixed_vector {
 public:
  fixed_vector(std::pmr::memory_resource& memory, std::size_t capacity) : block_(memory, capacity, sizeof(T)) {}
  fixed_vector(const fixed_vector&) = delete;
  [[gnu::noinline]] ~fixed_vector() { clear(); }

  template <class... Args>
  T& emplace_back(Args&&... args) {
    T* added = ::new (static_cast<void*>(begin() + size_)) T(std::forward<Args>(args)...);
    ++size_;
    return *added;
  }
  void push_back(T&& added) { static_cast<void>(emplace_back(std::move(added))); }
  void clear() noexcept {
    while (size_ > 0) begin()[--size_].~T();
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] T& operator[](std::size_t i) noexcept { return begin()[i]; }
  [[nodiscard]] const T& operator[](std::size_t i) const noexcept { return begin()[i]; }
  [[nodiscard]] T* begin() noexcept { return static_cast<T*>(block_.data()); }
  [[nodiscard]] T* end() noexcept { return begin() + size_; }
  [[nodiscard]] const T* begin() const noexcept { return static_cast<const T*>(block_.data()); }
  [[nodiscard]] const T* end() const noexcept { return begin() + size_; }
  [[nodiscard]] std::span<const T> span() const noexcept { return {begin(), size_}; }

 private:
  static_assert(alignof(T) <= detail::memory_block::alignment);

  detail::memory_block block_;
  std::size_t size_ = 0;
};

} // namespace spar::inline v0_1
