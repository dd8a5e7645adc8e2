// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Recycled records with stable addresses.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace spar::detail {

/// `acquire` gives a record as its last user left it, at an address that stays; `recycle` takes it back. `Record` has a
/// member `Record* next`. Memory is given back at the end. Records are made when they are first used, so `room` for
/// many costs addresses, not pages.
template <class Record>
class slab {
 public:
  explicit slab(std::size_t room = 8) : room_(room) {}

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
    explicit chunk(std::size_t n) : room(n), memory(std::allocator<Record>().allocate(n)) {}
    chunk(const chunk&) = delete;
    ~chunk() {
      for (std::size_t i = 0; i < made; ++i) memory[i].~Record();
      std::allocator<Record>().deallocate(memory, room);
      // A long chain must not be destroyed by recursion.
      while (older) older = std::move(older->older);
    }
    std::size_t room;
    std::size_t made = 0;
    Record* memory;
    std::unique_ptr<chunk> older;
  };

  [[nodiscard]] std::size_t spare() const noexcept { return newest_ ? newest_->room - newest_->made : 0; }

  [[gnu::noinline]] Record* add() {
    if (spare() == 0) grow(made_ > 0 ? 3 * made_ : room_);
    Record* r = ::new (newest_->memory + newest_->made) Record;
    ++newest_->made;
    ++made_;
    return r;
  }
  void grow(std::size_t room) {
    auto added = std::make_unique<chunk>(room);
    added->older = std::move(newest_); // the rest of its room, if any, stays unused
    newest_ = std::move(added);
  }

  Record* free_ = nullptr;
  std::size_t room_;
  std::size_t made_ = 0;
  std::unique_ptr<chunk> newest_;
};

} // namespace spar::detail
