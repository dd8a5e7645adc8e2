// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An intrusive queue, which links records through their member `next`. Therefore the queue allocates nothing, and a
// record can be in only one queue at a time.
#pragma once

#include <utility>

namespace spar::detail {

/// A first-in, first-out queue of records. `Record` must have a member `Record* next`.
template <class Record>
class record_queue {
 public:
  record_queue() = default;
  record_queue(const record_queue&) = delete;

  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  /// The first record, or null if the queue is empty. The member `next` of each record points to the following record.
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
  /// Removes and returns the first record `r` for which `matches(r)` is true. Returns null if there is no such record.
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
  Record* last_ = nullptr; // valid only if the queue is not empty
};

} // namespace spar::detail
