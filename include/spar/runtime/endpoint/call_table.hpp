// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The calls of a rank: their numbers, the calls in flight, statistics, and what errors report about ended calls.
#pragma once

#include <spar/core/memory/buffer.hpp>
#include <spar/core/memory/slab.hpp>
#include <spar/core/statistics.hpp>
#include <spar/core/util/bounded_text.hpp>
#include <spar/runtime/messages/call_names.hpp>
#include <spar/runtime/messages/message.hpp>
#include <spar/runtime/tasks/wait_list.hpp>

#include <bitset>
#include <cstdint>
#include <string_view>
#include <utility>

namespace spar {

namespace detail {

/// Writes a description of an object, such as an algorithm with its options.
struct description {
  const void* object = nullptr;
  void (*write)(const void* object, bounded_text& to) = nullptr;
};

} // namespace detail

/// The identity of a call, which errors may need after the call has ended.
struct call_identity {
  signature agreed;
  std::uint64_t sequence = 0;
  std::string_view chosen{}; ///< the algorithm that the call has chosen, if it chooses among several
};

/// The record of one call while it is in flight.
struct call_record : call_identity, detail::link {
  detail::description describe{}; // of the algorithm, if it is a policy
  statistics cost;
  double started = 0;
  detail::call_name* name = nullptr; // only in named calls
  buffer<std::uint8_t>
      messages; // number of messages so far to and from each rank on each lane, if payloads are checked
  call_record* next = nullptr;
};

namespace detail {

class call_table {
 public:
  /// Assigns the call its number. Must be the first step of each call, so that all ranks number calls in the same
  /// order.
  void number(call_record& call) noexcept {
    if (call.name != nullptr) {
      call.sequence = call.name->calls++ * max_in_flight + call.name->number;
    } else {
      call.sequence = next_ / first_named * max_in_flight + next_ % first_named;
      ++next_;
    }
  }
  /// Whether an earlier call in flight still uses the tags of `call`, which has a number.
  [[nodiscard]] bool tags_in_use(const call_record& call) const noexcept {
    return in_flight_[call.sequence % max_in_flight];
  }

  /// Starts a numbered call at the time `now`. Returns whether no other call is in flight.
  bool open(call_record& call, double now) noexcept {
    call.started = now;
    last_activity_ = now;
    in_flight_.set(call.sequence % max_in_flight);
    call.join_before(list_);
    return open_++ == 0;
  }
  /// Ends a call at the time `now`, after which later calls may use its tags.
  void finish(call_record& call, double now) noexcept {
    in_flight_.reset(call.sequence % max_in_flight);
    call.leave();
    last_ended_ = call;
    if (call.name != nullptr) call.name->in_flight = false;
    --open_;
    last_activity_ = now;
    call.cost.seconds = now - call.started;
    last_ = call.cost;
    total_ += call.cost;
  }
  [[nodiscard]] bool any() const noexcept { return open_ > 0; }

  /// Whether the last call began or ended more than 0.5 s before `now`, so that the other ranks may have given up this
  /// rank. Sets the time of the last activity to `now`.
  [[nodiscard]] bool was_away(double now) noexcept { return now - std::exchange(last_activity_, now) > 0.5; }
  /// When the last call began or ended.
  [[nodiscard]] double last_activity() const noexcept { return last_activity_; }

  /// The call in flight whose number equals `sequence` modulo `max_in_flight`; null if there is none.
  [[nodiscard]] call_record* find(std::uint64_t sequence) noexcept {
    for (link* l = &list_.after(); l != &list_; l = &l->after()) {
      auto* const call = static_cast<call_record*>(l);
      if (call->sequence % max_in_flight == sequence % max_in_flight) return call;
    }
    return nullptr;
  }
  [[nodiscard]] const call_identity& last_ended() const noexcept { return last_ended_; }

  /// Keeps the options of a failed call after its algorithm is destroyed, if it is the call that ended last: ranks that
  /// disagree may query them later.
  [[gnu::cold]] void keep_options(const call_record& call) noexcept {
    if (call.sequence != last_ended_.sequence || call.describe.write == nullptr) return;
    failed_options_.shrink(0);
    call.describe.write(call.describe.object, failed_options_);
    failed_sequence_ = call.sequence;
  }
  /// The kept options of the call with the number `sequence`; empty unless this is the call that failed last.
  [[nodiscard]] description kept_options(std::uint64_t sequence) const noexcept {
    if (failed_options_.empty() || sequence != failed_sequence_) return {};
    return {&failed_options_,
            [](const void* text, bounded_text& to) { to.add(static_cast<const bounded_text*>(text)->view()); }};
  }

  /// Returns a record for a call that outlives the scope in which it starts; to be returned by `recycle`.
  [[nodiscard]] call_record& acquire() {
    call_record& call = *records_.acquire();
    call.cost = {};
    call.name = nullptr;
    call.chosen = {};
    return call;
  }
  void recycle(call_record& call) noexcept { records_.recycle(&call); }

  /// Statistics of the call that ended last, and of all calls that have ended.
  [[nodiscard]] const spar::statistics& last_call() const noexcept { return last_; }
  [[nodiscard]] const spar::statistics& statistics() const noexcept { return total_; }

 private:
  std::uint64_t next_ = 0; // number of the next unnamed call
  std::uint64_t open_ = 0; // calls in flight
  std::bitset<max_in_flight> in_flight_;
  link list_; // calls in flight
  slab<call_record> records_;
  call_identity last_ended_;
  std::uint64_t failed_sequence_ = 0;
  bounded_text failed_options_; // empty until a call fails
  spar::statistics last_;
  spar::statistics total_;
  double last_activity_ = 0;
};

} // namespace detail

} // namespace spar
