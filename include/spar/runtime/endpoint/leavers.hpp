// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The ranks that have left a communicator while others may still use it, and the calls in which they have taken part. A
// rank that leaves tells all others how many calls it has started, and describes the last call that has ended
// (control_message::purpose::left). This text may overtake messages of these calls, so a call that waits for a rank
// that has left goes on if that rank has started the call, until no message of that rank can be under way.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/error.hpp>
#include <spar/core/memory/record_queue.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/core/util/bounded_text.hpp>
#include <spar/runtime/messages/call_names.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>

namespace spar::inline v0_1::detail {

/// The call of a rank that had ended last when the rank left, for the comparison with the call of a rank that waits.
struct last_call {
  std::uint64_t digest = 0;
  std::uint64_t history = 0;
  std::uint32_t sequence = ~std::uint32_t{0}; // number of the call, modulo header::sequences; greater if there is none
  rank_t root = -1;
};
static_assert(sizeof(last_call) == 24);

/// What a rank says when it leaves: the call that has ended last, and how many calls it has started: those without a
/// name, and those of each name. Of the names only the first `max_names`, in the order of their numbers, because the
/// text of a control message is short.
class calls_of_leaver {
 public:
  static constexpr std::uint64_t max_names = 58;
  using counts = std::array<std::uint64_t, 1 + max_names>; ///< of the calls without a name, and of each name

  /// The first `size` of `numbers`; those that follow are 0.
  calls_of_leaver(const last_call& last, const counts& numbers, std::size_t size) noexcept;
  /// What a rank that leaves says. Throws `corrupt_message` if `text`, which the rank `who` has sent, is malformed.
  calls_of_leaver(rank_t who, std::string_view text);
  [[nodiscard]] std::string_view text() const noexcept { return text_.view(); }

  [[nodiscard, gnu::cold]] last_call last() const noexcept;
  /// Whether the number of the calls with the name of the call `sequence` is known; false if that call has no name.
  [[nodiscard]] static bool counts_name(std::uint64_t sequence) noexcept {
    return sequence % max_in_flight - first_named < max_names; // without a name, the difference wraps around
  }
  /// The number of calls with the name of the call `sequence` or, if it is unknown, of those without a name.
  [[nodiscard]] std::uint64_t like(std::uint64_t sequence) const noexcept {
    return count(counts_name(sequence) ? 1 + sequence % max_in_flight - first_named : 0);
  }
  /// Whether the rank has certainly not taken part in the call `sequence`.
  [[nodiscard, gnu::cold]] bool lack(std::uint64_t sequence) const noexcept;
  /// Whether no message of the rank can be under way at the time `now`: `late` seconds have passed since the first call
  /// of this function, and since the time `since`, when a wait began (-1: none has begun).
  [[nodiscard]] bool is_silent(double since, double now, double late) noexcept;
  /// For a transport that cannot tell when the messages of the rank have arrived.
  void never_silent() noexcept { noticed_ = std::numeric_limits<double>::infinity(); }

 private:
  [[nodiscard]] std::uint64_t count(std::size_t i) const noexcept;
  bounded_text text_;
  double noticed_ = -1; // the time of the first call of `is_silent`; -1 before
};

class leavers {
 public:
  leavers() = default;
  leavers(const leavers&) = delete;
  ~leavers() { clear(); }

  [[nodiscard]] bool any() const noexcept { return !all_.empty(); }
  /// The calls of the rank `who`, if it has left; else null.
  [[nodiscard, gnu::cold]] calls_of_leaver* find(rank_t who) noexcept;
  /// Notes that the rank `who` has left, after the calls that `text` says, and returns these calls. Throws
  /// `corrupt_message` if `text` is malformed.
  [[gnu::cold]] calls_of_leaver& add(rank_t who, std::string_view text);
  /// For how many seconds this rank still waits for a message of a rank of which it knows that it has left. 0 for a
  /// transport whose text `left` never overtakes other messages of the same rank.
  [[nodiscard]] double late() const noexcept { return late_; }
  void set_late(double seconds) noexcept { late_ = seconds; }
  [[gnu::cold]] void clear() noexcept;

 private:
  struct leaver {
    rank_t who;
    calls_of_leaver calls;
    leaver* next = nullptr;
  };
  record_queue<leaver> all_;
  double late_ = 1;
};

} // namespace spar::inline v0_1::detail

#ifndef SPAR_COMPILED
#include <spar/runtime/endpoint/leavers-inl.hpp>
#endif
