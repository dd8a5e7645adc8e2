// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An owning, uninitialised array of trivially copyable elements in a memory space.
#pragma once

#include <spar/core/memory/space.hpp>

#include <cstddef>
#include <memory_resource>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

namespace spar::inline v0_1 {

namespace detail {

/// Maximum size of an array in bytes (2^60), so that sizes can be added and rounded up without overflow.
inline constexpr std::size_t max_bytes = std::size_t{1} << 60;

/// A block of memory from a memory resource; `data()` is null if the block is empty. Buffers of all element types use
/// this class. Its allocating constructor and its destructor are not inlined, because compilers would otherwise repeat
/// the calls to the memory resource at every place that creates or destroys a buffer.
class memory_block {
 public:
  static constexpr std::size_t alignment = 64; // bytes: a cache line, enough for every element type

  memory_block() = default;
  /// Allocates `count * element_bytes` bytes from `memory`. Throws std::bad_alloc if the memory is not available.
  [[gnu::noinline]] SPAR_INLINE memory_block(std::pmr::memory_resource& memory, std::size_t count,
                                             std::size_t element_bytes);
  memory_block(memory_block&& other) noexcept { *this = std::move(other); }
  memory_block& operator=(memory_block&& other) noexcept;
  [[gnu::noinline]] SPAR_INLINE ~memory_block();

  /// Returns the memory of this block to its memory resource; the block is empty afterwards.
  void reset() noexcept {
    if (data_ != nullptr) give_back();
  }

  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  void give_back() noexcept { memory_->deallocate(std::exchange(data_, nullptr), std::exchange(bytes_, 0), alignment); }

  std::pmr::memory_resource* memory_ = nullptr;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

} // namespace detail

/// An array of `size()` uninitialised elements of type T. Its memory comes from a memory resource: the pool of a rank
/// or, for `cuda`, a resource of device memory. Movable, not copyable.
template <class T, memory_space Space = host>
class buffer {
  static_assert(std::is_trivially_copyable_v<T>, "the elements of a buffer must be trivially copyable");
  static_assert(alignof(T) <= detail::memory_block::alignment);

 public:
  buffer() = default;
  /// Allocates `size` elements of type T from `memory`. Throws std::bad_alloc if the memory is not available.
  buffer(std::pmr::memory_resource& memory, std::size_t size) : block_(memory, size, sizeof(T)) {}
  /// Takes over the memory of a buffer whose type names another space than that of its memory resource.
  template <memory_space Other>
  explicit buffer(buffer<T, Other>&& other) noexcept : block_(std::move(other.block_)) {}

  /// The address of the first element.
  [[nodiscard]] T* data() noexcept { return static_cast<T*>(block_.data()); }
  [[nodiscard]] const T* data() const noexcept { return static_cast<const T*>(block_.data()); }
  /// The number of elements.
  [[nodiscard]] std::size_t size() const noexcept { return block_.bytes() / sizeof(T); }
  /// All elements.
  [[nodiscard]] std::span<T> span() noexcept { return {data(), size()}; }
  [[nodiscard]] std::span<const T> span() const noexcept { return {data(), size()}; }

  /// Returns the memory of this buffer to its memory resource; the buffer is empty afterwards.
  void reset() noexcept { block_.reset(); }

 private:
  template <class U, memory_space Other>
  friend class buffer;

  detail::memory_block block_;
};

} // namespace spar::inline v0_1

#ifndef SPAR_COMPILED
#include <spar/core/memory/buffer-inl.hpp>
#endif
