// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Dispatches control messages to the subscribers of a rank by number.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/memory/record_queue.hpp>
#include <spar/core/util/bounded_text.hpp>

#include <cstdint>
#include <cstring>
#include <string_view>

namespace spar::detail {

/// A subscriber on one rank. The thread that makes progress on the rank passes the control messages that begin with
/// `number` to the callback `hear`.
struct control_subscriber {
  std::uint32_t number = 0; // the same on every rank, because all ranks add their subscribers in the same order
  void (*hear)(void* self, rank_t source, std::string_view text) = nullptr;
  void* self = nullptr;
  control_subscriber* next = nullptr;
};

class control_dispatch {
 public:
  control_dispatch() = default;
  control_dispatch(const control_dispatch&) = delete;
  ~control_dispatch() {
    while (early_message* note = early_.pop_front()) delete note;
  }

  [[nodiscard]] bool empty() const noexcept { return all_.empty(); }
  /// The number of the next subscriber.
  [[nodiscard]] std::uint32_t next() const noexcept { return next_; }
  /// Assigns the next number to a subscriber and delivers the messages that have already arrived for this number. If
  /// the callback throws, the subscriber is not added.
  void add(control_subscriber& l) {
    l.number = next_++;
    while (early_message* note =
               early_.take([&](const early_message& n) { return number_of(n.text.view()) == l.number; })) {
      const early_message came = *note;
      delete note;
      l.hear(l.self, came.source, came.text.view());
    }
    all_.push_back(&l);
  }
  void remove(control_subscriber& l) noexcept {
    all_.take([&](const control_subscriber& other) { return &other == &l; });
  }

  /// Delivers a message to its subscriber. Keeps messages for future subscribers, and drops messages for removed ones.
  void hear(rank_t source, std::string_view text) {
    const std::uint32_t number = number_of(text);
    if (number >= next_) return early_.push_back(new early_message(source, text));
    for (control_subscriber* l = all_.first(); l != nullptr; l = l->next) {
      if (l->number == number) return l->hear(l->self, source, text);
    }
  }

 private:
  struct early_message {
    early_message(rank_t from, std::string_view what) noexcept : source(from) { text.add(what); }
    rank_t source;
    bounded_text text{};
    early_message* next = nullptr;
  };
  static std::uint32_t number_of(std::string_view text) noexcept {
    std::uint32_t number = 0;
    if (text.size() >= sizeof(number)) std::memcpy(&number, text.data(), sizeof(number));
    return number;
  }

  record_queue<control_subscriber> all_;
  record_queue<early_message> early_; // for subscribers that other ranks have already added, but not this rank
  std::uint32_t next_ = 0;
};

} // namespace spar::detail
