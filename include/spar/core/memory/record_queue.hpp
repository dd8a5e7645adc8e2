// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A queue of records that are linked through their member `next`: no memory of its own, each record in one queue at a
// time.
#pragma once

#include <utility>

namespace spar::detail {

/// First in, first out. `Record` has a member `Record* next`.
template <class Record>
class record_queue {
 public:
  record_queue() = default;
  record_queue(const record_queue&) = delete;

  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  /// The first record, or a null pointer; the others follow by `next`.
  [[nodiscard]] Record* first() const noexcept { return first_; }

  void push_back(Record* r) noexcept {
    r->next = nullptr;
    (first_ == nullptr ? first_ : last_->next) = r;
    last_ = r;
  }
  Record* pop_front() noexcept {
    Record* r = first_;
    if (r != nullptr) first_ = r->next;
    return r;
  }
  /// Takes the first record for which `matches` holds; a null pointer where there is none.
  template <class Predicate>
  Record* take(Predicate matches) {
    Record* before = nullptr;
    for (Record* r = first_; r != nullptr; before = std::exchange(r, r->next)) {
      if (!matches(*r)) continue;
      (before == nullptr ? first_ : before->next) = r->next;
      if (r == last_) last_ = before;
      return r;
    }
    return nullptr;
  }
  void clear() noexcept { first_ = nullptr; }
  void swap(record_queue& other) noexcept {
    std::swap(first_, other.first_);
    std::swap(last_, other.last_);
  }

 private:
  Record* first_ = nullptr;
  Record* last_ = nullptr; // of a queue that is not empty
};

} // namespace spar::detail
