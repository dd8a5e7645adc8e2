// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Dispatches control messages to the subscribers on a rank, by the number with which each message begins.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/memory/record_queue.hpp>
#include <spar/core/util/bounded_text.hpp>

#include <cstdint>
#include <cstring>
#include <string_view>

namespace spar::inline v0_1::detail {

/// A subscriber to control messages on one rank, for example a partial collective. The thread that makes progress on
/// the rank calls `on_message(self, source, text)` for each control message whose text begins with `number`.
struct control_subscriber {
  std::uint32_t number = 0; // equal on all ranks, which add their subscribers in the same order
  void (*on_message)(void* self, rank_t source, std::string_view text) = nullptr;
  void* self = nullptr;
  control_subscriber* next = nullptr;
};

class control_subscribers {
 public:
  control_subscribers() = default;
  control_subscribers(const control_subscribers&) = delete;
  ~control_subscribers();

  [[nodiscard]] bool empty() const noexcept { return all_.empty(); }
  /// Assigns the next number to the subscriber `l`, and delivers the messages that have already arrived for this
  /// number. If the callback `on_message` throws, the subscriber is not added.
  void add(control_subscriber& l);
  void remove(control_subscriber& l) noexcept {
    all_.take([&](const control_subscriber& other) { return &other == &l; });
  }

  /// Delivers a message to its subscriber, whose number is at the beginning of `text`. Keeps the message if no
  /// subscriber has had this number yet, and drops the message if the subscriber has been removed.
  void deliver(rank_t source, std::string_view text);

 private:
  struct early_message {
    early_message(rank_t from, std::string_view what) noexcept : source(from) { text.add(what); }
    rank_t source;
    bounded_text text{};
    early_message* next = nullptr;
  };
  static std::uint32_t subscriber_number(std::string_view text) noexcept {
    std::uint32_t number = 0;
    if (text.size() >= sizeof(number)) std::memcpy(&number, text.data(), sizeof(number));
    return number;
  }

  record_queue<control_subscriber> all_;
  record_queue<early_message> early_; // messages for subscribers that this rank has not added yet
  std::uint32_t next_ = 0;
};

} // namespace spar::inline v0_1::detail

#ifndef SPAR_COMPILED
#include <spar/runtime/messages/control_subscribers-inl.hpp>
#endif
