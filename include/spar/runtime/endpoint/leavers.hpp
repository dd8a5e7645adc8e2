// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The ranks that have left a communicator while others may still use it, and the calls in which they have taken part. A
// rank that leaves tells all others how many calls it has made (control_message::purpose::left). This text may overtake
// messages of these calls, so a call that waits for a rank that has left goes on if that rank has taken part in the
// call: everything that the rank had to send for the call is on its way.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/error.hpp>
#include <spar/core/memory/record_queue.hpp>
#include <spar/core/memory/slab.hpp>
#include <spar/core/util/bounded_text.hpp>
#include <spar/runtime/messages/call_names.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace spar::detail {

/// The number of calls that a rank had made when it left: of those without a name, and of each name. Of the names only
/// the first `max_names`, in the order of their numbers, because the text of a control message is short.
class calls_of_leaver {
 public:
  static constexpr std::uint64_t max_names = 60;
  using counts = std::array<std::uint64_t, 1 + max_names>; ///< of the calls without a name, and of each name

  calls_of_leaver() = default;
  /// The first `size` of `numbers`; those that follow are 0.
  calls_of_leaver(const counts& numbers, std::size_t size) noexcept {
    text_.add({reinterpret_cast<const char*>(numbers.data()), size * sizeof(numbers[0])});
  }
  /// What a rank that leaves says. Throws `corrupt_message` if `text`, which the rank `who` has sent, is malformed.
  calls_of_leaver(rank_t who, std::string_view text) {
    constexpr std::size_t size = sizeof(std::uint64_t);
    if (text.size() < size || text.size() % size != 0) {
      raise<corrupt_message>({"the numbers of calls of rank ", who, ", which has left, have ", text.size(),
                              " bytes; expected a multiple of ", size, ", at least ", size});
    }
    text_.add(text);
  }
  [[nodiscard]] std::string_view text() const noexcept { return text_.view(); }

  [[nodiscard]] std::uint64_t unnamed() const noexcept { return count(0); }
  /// The number of calls of the kind of the call `sequence`: without a name, or of the same name.
  [[nodiscard]] std::uint64_t like(std::uint64_t sequence) const noexcept {
    const std::uint64_t number = sequence % max_in_flight;
    return number < first_named ? unnamed() : count(1 + number - first_named);
  }
  /// Whether the rank has certainly not taken part in the call `sequence`.
  [[nodiscard]] bool lack(std::uint64_t sequence) const noexcept {
    const std::uint64_t number = sequence % max_in_flight, turn = sequence / max_in_flight;
    if (number < first_named) return turn * first_named + number >= unnamed();
    return number - first_named < max_names && turn >= like(sequence);
  }

 private:
  [[nodiscard]] std::uint64_t count(std::size_t i) const noexcept {
    std::uint64_t number = 0;
    if ((i + 1) * sizeof(number) <= text_.size())
      std::memcpy(&number, text_.c_str() + i * sizeof(number), sizeof(number));
    return number;
  }
  bounded_text text_;
};

class leavers {
 public:
  [[nodiscard]] bool any() const noexcept { return !all_.empty(); }
  /// The calls of the rank `who`, if it has left; else null.
  [[nodiscard]] const calls_of_leaver* find(rank_t who) const noexcept {
    for (const leaver* l = all_.first(); l != nullptr; l = l->next) {
      if (l->who == who) return &l->calls;
    }
    return nullptr;
  }
  /// Notes that the rank `who` has left, after the calls that `text` says. Throws `corrupt_message` if `text` is
  /// malformed.
  [[gnu::cold]] void add(rank_t who, std::string_view text) {
    const calls_of_leaver calls(who, text);
    if (find(who) != nullptr) return;
    leaver* const l = records_.acquire();
    l->who = who;
    l->calls = calls;
    all_.push_back(l);
  }
  void clear() noexcept {
    while (leaver* l = all_.pop_front()) records_.recycle(l);
  }

 private:
  struct leaver {
    rank_t who = 0;
    calls_of_leaver calls{};
    leaver* next = nullptr;
  };
  slab<leaver> records_;
  record_queue<leaver> all_;
};

} // namespace spar::detail
