// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A pool of memory blocks: what one call frees, the next call of the same size or smaller takes without allocating.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory_resource>

namespace spar {

/// Recycles blocks over an upstream resource, the allocator hook. Blocks of all sizes are kept until `trim()` or the
/// end, so a repeated call allocates nothing. Not synchronised: a pool belongs to one rank, and only its thread
/// allocates and frees. Blocks may outlive the pool's owner (a result that is kept): use `pool_owner`.
class pool final : public std::pmr::memory_resource {
 public:
  static constexpr std::size_t alignment = 64;

  explicit pool(std::pmr::memory_resource& upstream = *std::pmr::new_delete_resource()) : upstream_(&upstream) {}
  pool(const pool&) = delete;
  ~pool() override { trim(); }

  /// Gives the unused blocks back to the upstream resource.
  void trim() noexcept {
    for (std::size_t size_class = 0; size_class < classes; ++size_class) {
      while (block* b = free_[size_class]) {
        free_[size_class] = b->next;
        upstream_->deallocate(b, capacity(size_class) + alignment, alignment);
      }
    }
    occupied_ = {};
  }

  // Called directly, where the base class would guess at the type of the resource in every place that allocates.
  void* allocate(std::size_t bytes, std::size_t align) { return do_allocate(bytes, align); }
  void deallocate(void* p, std::size_t bytes, std::size_t align) noexcept { do_deallocate(p, bytes, align); }

  /// Blocks that are in use now.
  [[nodiscard]] std::uint64_t live() const noexcept { return live_; }

 private:
  friend class pool_owner;

  /// Lies in front of the memory that is handed out and remembers the class, which can be larger than was asked for.
  struct block {
    block* next;
    std::size_t size_class;
  };

  // Four classes per power of two waste at most a fifth; the first is 64 bytes.
  static constexpr std::size_t classes = 4 * 58;

  static constexpr std::size_t class_of(std::size_t bytes) noexcept {
    if (bytes <= 64) return 0;
    const auto power = static_cast<std::size_t>(std::bit_width(bytes - 1)) - 1; // 2^power < bytes <= 2^(power+1)
    const std::size_t quarter = ((bytes - 1) >> (power - 2)) & 3;
    return 4 * (power - 6) + quarter + 1;
  }
  static constexpr std::size_t capacity(std::size_t size_class) noexcept {
    if (size_class == 0) return 64;
    const std::size_t power = (size_class - 1) / 4 + 6;
    return (std::size_t{1} << power) + (((size_class - 1) % 4 + 1) << (power - 2));
  }

  /// The smallest class from `wanted` upwards that has a free block, or `classes`.
  [[nodiscard]] std::size_t first_occupied(std::size_t wanted) const noexcept {
    for (std::size_t word = wanted / 64; word < occupied_.size(); ++word) {
      std::uint64_t bits = occupied_[word];
      if (word == wanted / 64) bits &= ~std::uint64_t{0} << (wanted % 64);
      if (bits != 0) return word * 64 + static_cast<std::size_t>(std::countr_zero(bits));
    }
    return classes;
  }

  // Out of line: every coroutine and buffer would otherwise carry a copy.
  [[gnu::noinline]] void* do_allocate(std::size_t bytes, std::size_t align) override {
    if (align > alignment) throw std::bad_alloc();
    const std::size_t wanted = class_of(bytes);
    const std::size_t found = first_occupied(wanted);
    block* b = nullptr;
    if (found < classes) {
      b = free_[found];
      free_[found] = b->next;
      if (free_[found] == nullptr) occupied_[found / 64] &= ~(std::uint64_t{1} << (found % 64));
    } else {
      b = ::new (upstream_->allocate(capacity(wanted) + alignment, alignment)) block{nullptr, wanted};
    }
    ++live_;
    return reinterpret_cast<std::byte*>(b) + alignment;
  }

  [[gnu::noinline]] void do_deallocate(void* p, std::size_t, std::size_t) override {
    auto* b = reinterpret_cast<block*>(static_cast<std::byte*>(p) - alignment);
    b->next = free_[b->size_class];
    free_[b->size_class] = b;
    occupied_[b->size_class / 64] |= std::uint64_t{1} << (b->size_class % 64);
    if (--live_ == 0 && owners_ == 0) delete this;
  }

  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  std::pmr::memory_resource* upstream_;
  std::array<block*, classes> free_{};
  std::array<std::uint64_t, (classes + 63) / 64> occupied_{};
  std::uint64_t live_ = 0;
  std::uint64_t owners_ = 1;
};

/// Owns a pool, together with its copies. The pool lives on until its last block is returned, so that a result may
/// outlive the transport it came from.
class pool_owner {
 public:
  explicit pool_owner(std::pmr::memory_resource& upstream) : pool_(new pool(upstream)) {}
  pool_owner(const pool_owner& other) noexcept : pool_(other.pool_) { ++pool_->owners_; }
  pool_owner& operator=(const pool_owner&) = delete;
  ~pool_owner() {
    if (--pool_->owners_ == 0 && pool_->live() == 0) delete pool_;
  }
  [[nodiscard]] pool& operator*() const noexcept { return *pool_; }

 private:
  pool* pool_;
};

} // namespace spar
