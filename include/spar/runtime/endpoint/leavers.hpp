// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The ranks that have left a communicator while others may still use it, and the calls in which they have taken part. A
// rank that leaves tells all others how many calls it has made (control_message::purpose::left). This text may overtake
// messages of these calls, so a call that waits for a rank that has left goes on if that rank has taken part in the
// call: everything that the rank had to send for the call is on its way.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/error.hpp>
#include <spar/core/memory/record_queue.hpp>
#include <spar/runtime/messages/call_names.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace spar::detail {

/// The number of calls that a rank had made when it left: of those without a name, and of each name. Of the names only
/// the first `max_names`, in the order of their numbers, because the text of a control message is short.
struct calls_of_leaver {
  static constexpr std::uint64_t max_names = 60;

  std::uint64_t unnamed = 0;
  std::string named{}; // the number of calls of each name, as std::uint64_t

  /// The number of calls of the kind of the call `sequence`: without a name, or of the same name.
  [[nodiscard]] std::uint64_t like(std::uint64_t sequence) const noexcept {
    const std::uint64_t number = sequence % max_in_flight;
    if (number < first_named) return unnamed;
    std::uint64_t count = 0;
    const std::size_t at = sizeof(count) * (number - first_named);
    if (at < named.size()) std::memcpy(&count, named.data() + at, sizeof(count));
    return count;
  }
  /// Whether the rank has certainly not taken part in the call `sequence`.
  [[nodiscard]] bool lack(std::uint64_t sequence) const noexcept {
    const std::uint64_t number = sequence % max_in_flight, turn = sequence / max_in_flight;
    if (number < first_named) return turn * first_named + number >= unnamed;
    return number - first_named < max_names && turn >= like(sequence);
  }
};

class leavers {
 public:
  leavers() = default;
  leavers(const leavers&) = delete;
  ~leavers() { clear(); }

  [[nodiscard]] bool any() const noexcept { return !all_.empty(); }
  /// The calls of the rank `who`, if it has left; else null.
  [[nodiscard]] const calls_of_leaver* find(rank_t who) const noexcept {
    for (const leaver* l = all_.first(); l != nullptr; l = l->next) {
      if (l->who == who) return &l->calls;
    }
    return nullptr;
  }
  /// Notes that the rank `who` has left. `text` is what it has said, `text_of` its calls. Throws `corrupt_message` if
  /// `text` is malformed.
  [[gnu::cold]] void add(rank_t who, std::string_view text) {
    constexpr std::size_t size = sizeof(std::uint64_t);
    if (text.size() < size || text.size() % size != 0) {
      raise<corrupt_message>({"the numbers of calls of rank ", who, ", which has left, have ", text.size(),
                              " bytes; expected a multiple of ", size, ", at least ", size});
    }
    if (find(who) != nullptr) return;
    auto* const l = new leaver{who};
    all_.push_back(l);
    std::memcpy(&l->calls.unnamed, text.data(), size);
    l->calls.named = text.substr(size);
  }
  void clear() noexcept {
    while (leaver* l = all_.pop_front()) delete l;
  }
  [[nodiscard]] static std::string text_of(const calls_of_leaver& calls) {
    std::string text(reinterpret_cast<const char*>(&calls.unnamed), sizeof(calls.unnamed));
    return text + calls.named;
  }

 private:
  struct leaver {
    rank_t who;
    calls_of_leaver calls{};
    leaver* next = nullptr;
  };
  record_queue<leaver> all_;
};

} // namespace spar::detail
