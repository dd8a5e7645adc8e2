// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An allocator that recycles records, which never move.
#pragma once

#include <spar/core/compiler.hpp>

#include <cstddef>
#include <new>
#include <utility>

namespace spar::detail {

/// Owns records and recycles them. `acquire` returns a new record, or a recycled record in the state in which its last
/// user left it. `recycle` makes a record available again. A record never moves, and its memory is freed only when the
/// slab is destroyed. `Record` must have a member `Record* next`. The slab allocates memory for `room` records at
/// first, but constructs a record only when the record is first used. Therefore a large `room` costs address space, but
/// no physical memory.
template <class Record>
class slab {
 public:
  explicit slab(std::size_t room = 8) : room_(room) {}
  slab(const slab&) = delete;
  ~slab() {
    while (newest_ != nullptr) delete std::exchange(newest_, newest_->older);
  }

  /// Allocates the memory for the first `room` records now, so that `acquire` does not fail before they are in use.
  void reserve() {
    if (newest_ == nullptr) newest_ = new chunk(room_, nullptr);
  }

  /// Makes the destructor leak all existing records, because code outside spar (the MPI library) may still access the
  /// memory of these records.
  void keep_for_ever() noexcept { newest_ = nullptr; }

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
  struct chunk {
    static constexpr std::align_val_t alignment{alignof(Record)};

    chunk(std::size_t n, chunk* before)
        : room(n), memory(static_cast<Record*>(::operator new(n * sizeof(Record), alignment))), older(before) {}
    chunk(const chunk&) = delete;
    ~chunk() {
      while (made > 0) memory[--made].~Record();
      ::operator delete(memory, alignment);
    }
    std::size_t room;
    std::size_t made = 0;
    Record* memory;
    chunk* older;
  };

  [[gnu::cold]] Record* add() {
    if (newest_ == nullptr || newest_->made == newest_->room)
      newest_ = new chunk(made_ > 0 ? 3 * made_ : room_, newest_);
    Record* r = ::new (newest_->memory + newest_->made) Record;
    ++newest_->made;
    ++made_;
    return r;
  }

  Record* free_ = nullptr;
  std::size_t room_;
  std::size_t made_ = 0;
  chunk* newest_ = nullptr;
};

} // namespace spar::detail
