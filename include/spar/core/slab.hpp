// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Recycled records with stable addresses.
#pragma once

#include <utility>

namespace spar::detail {

/// `acquire` gives a record as its last user left it, at an address that stays; `recycle` takes it back. `Record` has a
/// member `Record* next`. Memory is given back at the end.
template <class Record>
class slab {
 public:
  slab() = default;
  slab(const slab&) = delete;
  ~slab() {
    while (blocks_ != nullptr) delete std::exchange(blocks_, blocks_->older);
  }

  Record* acquire() {
    if (free_ == nullptr) grow();
    Record* r = free_;
    free_ = r->next;
    return r;
  }
  void recycle(Record* r) noexcept {
    r->next = free_;
    free_ = r;
  }

 private:
  struct block {
    Record records[8];
    block* older = nullptr;
  };

  [[gnu::noinline]] void grow() {
    auto* added = new block;
    for (Record& r : added->records) recycle(&r);
    added->older = std::exchange(blocks_, added);
  }

  Record* free_ = nullptr;
  block* blocks_ = nullptr;
};

} // namespace spar::detail
