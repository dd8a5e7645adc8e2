// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Recycled records with stable addresses.
#pragma once

#include <cstddef>
#include <memory>

namespace spar::detail {

/// `acquire` gives a record as its last user left it, at an address that stays; `recycle` takes it back. `Record` has a
/// member `Record* next`. Memory is given back at the end.
template <class Record>
class slab {
 public:
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
    std::unique_ptr<block> older;
    // A long chain must not be destroyed by recursion.
    ~block() {
      while (older) older = std::move(older->older);
    }
  };

  [[gnu::noinline]] void grow() {
    auto added = std::make_unique<block>();
    for (Record& r : added->records) recycle(&r);
    added->older = std::move(blocks_);
    blocks_ = std::move(added);
  }

  Record* free_ = nullptr;
  std::unique_ptr<block> blocks_;
};

} // namespace spar::detail
