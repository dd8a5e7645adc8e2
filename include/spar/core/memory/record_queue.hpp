// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An intrusive queue, which links records through their member `next`. Therefore the queue allocates nothing, and a
// record can be in only one queue at a time.
#pragma once

#include <spar/core/compiler.hpp>

#include <utility>

namespace spar::inline v0_1::detail {

/// The ends of a `record_queue` with records of any type.
class queue_ends {
 public:
  queue_ends() = default;
  queue_ends(const queue_ends&) = delete;

  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }

 protected:
  void* first_ = nullptr;
  void* last_ = nullptr; // valid only if the queue is not empty
};

/// A first-in, first-out queue of records. `Record` must have a member `Record* next`.
template <class Record>
class record_queue : public queue_ends {
 public:
  /// The first record, or null if the queue is empty. The member `next` of each record points to the following record.
  [[nodiscard]] Record* first() const noexcept { return static_cast<Record*>(first_); }

  void push_back(Record* r) noexcept {
    r->next = nullptr;
    if (first_ == nullptr)
      first_ = r;
    else
      static_cast<Record*>(last_)->next = r;
    last_ = r;
  }
  Record* pop_front() noexcept {
    Record* r = first();
    if (r != nullptr) first_ = r->next;
    return r;
  }
  /// Removes and returns the first record `r` for which `matches(r)` is true. Returns null if there is no such record.
  template <class Predicate>
  Record* take(Predicate matches) {
    Record* before = nullptr;
    for (Record* r = first(); r != nullptr; before = std::exchange(r, r->next)) {
      if (!matches(*r)) continue;
      if (before == nullptr)
        first_ = r->next;
      else
        before->next = r->next;
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
};

} // namespace spar::inline v0_1::detail
