// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Those on a rank to whom control messages are addressed by number.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/memory/record_queue.hpp>
#include <spar/core/util/bounded_text.hpp>

#include <cstdint>
#include <cstring>
#include <string_view>

namespace spar::detail {

/// Is told the control messages that begin with its number, by whoever makes progress on its rank.
struct control_subscriber {
  std::uint32_t number = 0; // the same on every rank, as all add their control_dispatch in the same order
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
  /// The number of the one that is added next.
  [[nodiscard]] std::uint32_t next() const noexcept { return next_; }
  /// Gives it the next number, and tells it what has come for that number already; not added where it throws.
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

  /// What comes for a control_subscriber that has gone is of no use any more.
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
  record_queue<early_message> early_; // for control_dispatch that other ranks have added, this one not yet
  std::uint32_t next_ = 0;
};

} // namespace spar::detail
