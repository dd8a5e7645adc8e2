// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Recycled records with stable addresses.
#pragma once

#include <deque>
#include <vector>

namespace spar::detail {

/// `acquire` gives a record as it was left by its last user, at an address that stays; `recycle` takes it back.
template <class Record>
class slab {
 public:
  Record* acquire() {
    if (free_.empty()) {
      if (free_.capacity() <= records_.size()) free_.reserve(2 * records_.size() + 8); // recycling must not throw
      return &records_.emplace_back();
    }
    Record* r = free_.back();
    free_.pop_back();
    return r;
  }
  void recycle(Record* r) noexcept { free_.push_back(r); }

  [[nodiscard]] bool all_free() const noexcept { return free_.size() == records_.size(); }

 private:
  std::deque<Record> records_;
  std::vector<Record*> free_;
};

} // namespace spar::detail
