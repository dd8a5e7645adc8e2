// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The table of the calls of a rank: assigns numbers to calls, and keeps the calls in flight, the statistics, and what
// error messages need to know about calls that have ended.
#pragma once

#include <spar/core/memory/buffer.hpp>
#include <spar/core/memory/link.hpp>
#include <spar/core/memory/slab.hpp>
#include <spar/core/statistics.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/core/util/bounded_text.hpp>
#include <spar/core/util/fnv1a.hpp>
#include <spar/runtime/messages/call_names.hpp>
#include <spar/runtime/messages/message.hpp>
#include <spar/runtime/tasks/call_error.hpp>

#include <array>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

namespace spar::inline v0_1 {

namespace detail {

/// A description of an object for error messages: `write(object, to)` appends the description to `to`, for example the
/// name and the options of an algorithm. The description is empty if `write` is null.
struct description {
  const void* object = nullptr;
  void (*write)(const void* object, bounded_text& to) = nullptr;
};

} // namespace detail

/// The identity of a call: its signature, number and algorithm, which error messages may need after the call has ended.
struct call_identity {
  signature agreed{};
  std::uint64_t sequence = 0;
  /// Hash of the signatures of all earlier calls: of those without a name or, if the call has a name, of those with
  /// this name. Ranks compare the history in each message, because ranks that only send compare nothing in their own
  /// call.
  std::uint64_t history = 0;
  std::string_view chosen{}; ///< name of the algorithm that the call has chosen; empty if the call does not choose one
};

/// The record of one call while it is in flight.
struct call_record : call_identity, detail::link {
  detail::description describe{}; // name and options of the algorithm; empty if it is not a policy
  statistics cost;
  double started = 0;
  detail::call_name* name = nullptr; // null for unnamed calls
  // With checksums: number of messages so far, modulo 256, to and from each rank on each lane. Otherwise empty.
  buffer<std::uint8_t> messages;
  call_record* next = nullptr;
  detail::call_error error;
};

namespace detail {

/// The part of the handle of a non-blocking call that the communicator can reach, so that the handle can outlive the
/// communicator (see runtime/end_calls.hpp).
struct call_handle : link {
  void* net = nullptr;          // the transport of the call; null once it is destroyed, or if `call` is null
  call_record* call = nullptr;  // null if another handle has taken over the call
  std::coroutine_handle<> work; // the coroutine of the call
};

class call_table {
 public:
  /// Assigns `call`, whose signature is set, its number and its history. Must be the first step of each unnamed call,
  /// so that all ranks number their unnamed calls in the same order.
  void number(call_record& call) noexcept;
  /// Whether another call in flight uses the same tags as `call`, which has a number but has not started.
  [[nodiscard]] bool tags_in_use(const call_record& call) const noexcept {
    return (in_flight_[word_of(call)] & bit_of(call)) != 0;
  }

  /// Starts `call`, which already has a number, at the time `now` in seconds. Returns true if no other call is in
  /// flight.
  bool open(call_record& call, double now) noexcept {
    call.started = now;
    last_activity_ = now;
    in_flight_[word_of(call)] |= bit_of(call);
    call.join_before(list_);
    return open_++ == 0;
  }
  /// Ends `call` at the time `now` in seconds, after which later calls may use its tags.
  void finish(call_record& call, double now) noexcept;
  [[nodiscard]] bool any() const noexcept { return open_ > 0; }
  /// The number of unnamed calls so far.
  [[nodiscard]] std::uint64_t unnamed() const noexcept { return next_; }

  /// Whether `last_activity()` is more than 0.5 s before `now`. If so, this rank was inactive, and other ranks may have
  /// aborted the communicator in the meantime. Sets `last_activity()` to `now`.
  [[nodiscard]] bool was_away(double now) noexcept { return now - std::exchange(last_activity_, now) > 0.5; }
  /// The time, in seconds, at which a call last began or ended on this rank, or at which `was_away` was last called.
  [[nodiscard]] double last_activity() const noexcept { return last_activity_; }

  /// The call in flight whose number equals `sequence` modulo `max_in_flight`; null if there is none.
  [[nodiscard]] call_record* find(std::uint64_t sequence) noexcept;
  /// The call that has ended last; null if none has ended.
  [[nodiscard, gnu::cold]] const call_identity* last_ended() const noexcept;
  /// The call whose number equals `sequence` modulo header::sequences, if this call is one of the 16 calls that have
  /// ended last; null otherwise.
  [[nodiscard, gnu::cold]] const call_identity* find_ended(std::uint64_t sequence) const noexcept;

  /// Copies the options of the failed call `call` before its algorithm is destroyed, because a peer whose call differs
  /// may query these options later. Does nothing if `call` is not the call that ended last, or if its algorithm is not
  /// a policy.
  [[gnu::cold]] void keep_options(const call_record& call) noexcept;
  /// The options that `keep_options` has copied from the call with the number `sequence`; empty if `keep_options` has
  /// not copied any from this call, or has copied the options of another call since.
  [[nodiscard]] description kept_options(std::uint64_t sequence) const noexcept;

  /// Returns a record for a non-blocking call, that is, a call that outlives the function that starts it. The caller
  /// must give the record back to `recycle`.
  [[nodiscard]] call_record& acquire();
  void recycle(call_record& call) noexcept { records_.recycle(&call); }
  /// The handles of non-blocking calls, including calls that have ended.
  [[nodiscard]] link& handles() noexcept { return handles_; }

  /// `last_call()` returns the statistics of the call that ended last, and `statistics()` the total of all calls that
  /// have ended.
  [[nodiscard]] const spar::statistics& last_call() const noexcept { return last_; }
  [[nodiscard]] const spar::statistics& statistics() const noexcept { return total_; }

 private:
  static std::size_t word_of(const call_record& call) noexcept { return call.sequence % max_in_flight / 64; }
  static std::uint64_t bit_of(const call_record& call) noexcept { return std::uint64_t{1} << call.sequence % 64; }

  std::uint64_t next_ = 0;                                    // number of unnamed calls so far
  std::uint64_t history_ = 0;                                 // hash of the signatures of the unnamed calls so far
  std::uint64_t open_ = 0;                                    // number of calls in flight
  std::array<std::uint64_t, max_in_flight / 64> in_flight_{}; // bit set of the numbers of the calls in flight
  link list_;                                                 // calls in flight
  link handles_;
  slab<call_record> records_;
  std::uint64_t endings_ = 0;           // number of calls that have ended
  std::array<call_identity, 16> ended_; // the calls that have ended last
  std::uint64_t failed_sequence_ = 0;
  bounded_text failed_options_; // empty until a call fails
  spar::statistics last_;
  spar::statistics total_;
  double last_activity_ = 0;
};

} // namespace detail

} // namespace spar::inline v0_1

#ifndef SPAR_COMPILED
#include <spar/runtime/endpoint/call_table-inl.hpp>
#endif
