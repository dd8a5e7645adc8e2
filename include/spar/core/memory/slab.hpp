// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An allocator that recycles records, which never move.
#pragma once

#include <spar/core/util/algobase.hpp>

#include <cstddef>
#include <new>
#include <utility>

namespace spar::inline v0_1::detail {

/// The memory of a slab, by one code for all types of records. An owner constructs each record itself.
class slab_memory {
 public:
  /// Memory for records of `size` bytes, which `destroy` destroys; at first for `room` records.
  slab_memory(std::size_t size, std::size_t alignment, std::size_t room, void (*destroy)(void*) noexcept) noexcept
      : size_(size), alignment_(std::max(alignment, alignof(chunk))), room_(std::max<std::size_t>(room, 1)),
        destroy_(destroy) {}
  slab_memory(const slab_memory&) = delete;
  [[gnu::cold, gnu::noinline]] SPAR_INLINE ~slab_memory();

  /// Allocates the memory of the first records, unless there is memory already.
  void reserve() {
    if (newest_ == nullptr) grow(room_);
  }
  /// Makes the destructor leak all records.
  void leak() noexcept { newest_ = nullptr; }

  /// Returns memory for another record. The caller constructs the record, and then calls `count`.
  [[gnu::cold]] void* add();
  void count() noexcept {
    ++newest_->made;
    ++made_;
  }

 private:
  struct chunk { // in front of its records
    std::size_t room;
    chunk* older;
    std::size_t made = 0; // number of records that exist
  };

  /// The memory of the i-th record of `in`.
  void* record(chunk& in, std::size_t i) const noexcept {
    const std::size_t first = (sizeof(chunk) + alignment_ - 1) / alignment_ * alignment_;
    return reinterpret_cast<std::byte*>(&in) + first + i * size_;
  }
  void grow(std::size_t room);

  std::size_t size_;
  std::size_t alignment_;
  std::size_t room_;
  void (*destroy_)(void*) noexcept;
  std::size_t made_ = 0;
  chunk* newest_ = nullptr;
};

/// Owns records and recycles them. `acquire` returns a new record, or a recycled record in the state in which its last
/// user left it. `recycle` makes a record available again. A record never moves, and its memory is freed only when the
/// slab is destroyed. `Record` must have a member `Record* next`. The slab allocates memory for `room` records at
/// first, but constructs a record only when the record is first used. Therefore a large `room` costs address space, but
/// no physical memory.
template <class Record>
class slab {
 public:
  explicit slab(std::size_t room = 8) noexcept
      : memory_(sizeof(Record), alignof(Record), room,
                [](void* record) noexcept { static_cast<Record*>(record)->~Record(); }) {}

  /// Allocates the memory for the first `room` records now, so that `acquire` does not fail before they are in use.
  void reserve() { memory_.reserve(); }

  /// Makes the destructor leak all existing records, because code outside spar (the MPI library) may still access the
  /// memory of these records.
  void keep_forever() noexcept { memory_.leak(); }

  Record* acquire() {
    if (free_ == nullptr) return add();
    Record* r = free_;
    free_ = r->next;
    return r;
  }
  void recycle(Record* r) noexcept {
    r->next = free_;
    free_ = r;
  }

 private:
  [[gnu::cold]] Record* add() {
    Record* const r = ::new (memory_.add()) Record;
    memory_.count();
    return r;
  }

  Record* free_ = nullptr;
  slab_memory memory_;
};

} // namespace spar::inline v0_1::detail

#ifndef SPAR_COMPILED
#include <spar/core/memory/slab-inl.hpp>
#endif
