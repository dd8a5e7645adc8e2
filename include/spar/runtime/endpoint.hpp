// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The endpoint, which holds the state of one rank that is the same for every transport. Most parts of this state have
// their own classes, in the folders endpoint/ and messages/.
#pragma once

#include <spar/core/check_number.hpp>
#include <spar/core/error.hpp>
#include <spar/core/memory/buffer.hpp>
#include <spar/core/memory/link.hpp>
#include <spar/core/memory/pool.hpp>
#include <spar/core/memory/record_queue.hpp>
#include <spar/core/network_model.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/endpoint/call_table.hpp>
#include <spar/runtime/endpoint/failure.hpp>
#include <spar/runtime/endpoint/leavers.hpp>
#include <spar/runtime/endpoint/loans.hpp>
#include <spar/runtime/endpoint/waits.hpp>
#include <spar/runtime/messages/control_message.hpp>
#include <spar/runtime/messages/control_subscribers.hpp>
#include <spar/runtime/messages/control_text.hpp>
#include <spar/runtime/tasks/operation_record.hpp>
#include <spar/runtime/tasks/rank_mutex.hpp>
#include <spar/runtime/tasks/scheduler.hpp>

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <string>
#include <string_view>

#include <time.h>

namespace spar::inline v0_1 {

namespace detail {

struct peer_question;

/// A message that has arrived and that no receive has taken. `head` is null if there is none.
struct unreceived_message {
  rank_t source = 0;
  tag_t tag = 0;
  const header* head = nullptr;
};

} // namespace detail

/// Base class of all transports. Programs do not use an endpoint directly, but through `communicator_rank`. Only one
/// thread at a time may use an endpoint. If a rank has several threads, the thread that uses the endpoint holds the
/// lock of the rank.
class endpoint {
 public:
  /// The state of the rank number `rank` of `size` ranks, which allocates from `memory`. Throws `invalid_argument` if
  /// `size` is less than 1.
  endpoint(rank_t rank, rank_t size, const pool_owner& memory);
  endpoint(const endpoint&) = delete;
  /// Ends the program, with a message, if a partial allreduce on the communicator still exists.
  ~endpoint();

  [[nodiscard]] rank_t rank() const noexcept { return rank_; }
  [[nodiscard]] rank_t size() const noexcept { return size_; }
  [[nodiscard]] spar::scheduler& scheduler() noexcept { return scheduler_; }
  [[nodiscard]] pool& memory() const noexcept { return *pool_; }

  // The parts of the endpoint.

  /// The calls of this rank, and their statistics: see endpoint/call_table.hpp.
  [[nodiscard]] detail::call_table& calls() noexcept { return calls_; }
  [[nodiscard]] const detail::call_table& calls() const noexcept { return calls_; }
  /// The operations that coroutines of this rank await: see endpoint/waits.hpp.
  [[nodiscard]] detail::waits& waits() noexcept { return waits_; }
  [[nodiscard]] const detail::waits& waits() const noexcept { return waits_; }
  /// The send buffers of failed calls that peers still read; a transport calls `loans().any()`, which says whether
  /// there are any.
  [[nodiscard]] const detail::loans& loans() const noexcept { return loans_; }
  /// The failure of the communicator, if any: `failed_rank()`, and `raise_peer_failed()`, which throws `peer_failed`.
  [[nodiscard]] const detail::failure& failure() const noexcept { return failure_; }
  /// Throws `invalid_argument` if this rank leaves, or has left, the communicator together with all other ranks. If the
  /// communicator is dead, the call itself says why.
  void check_open() const {
    if (closed_ && !dead()) raise_closed();
  }
  /// Called when this rank begins to leave the communicator together with all others: see `agreed_leave`.
  void close() noexcept { closed_ = true; }
  /// Whether a rank of this communicator has failed, as far as this rank knows. After a failure, no collective works on
  /// the communicator any more.
  [[nodiscard]] bool dead() const noexcept { return failure_.dead(); }
  /// This rank's subscribers to control messages with the purpose `round`. The text of each of these messages begins
  /// with the number of its subscriber.
  [[nodiscard]] detail::control_subscribers& subscribers() noexcept { return subscribers_; }
  /// The ranks that have left: see endpoint/leavers.hpp.
  [[nodiscard]] detail::leavers& leavers() noexcept { return leavers_; }
  /// The calls that this rank has started, ended or not, for a rank that leaves.
  [[nodiscard, gnu::cold]] detail::calls_of_leaver calls_so_far() const noexcept;
  /// The incomplete texts, of which only some parts have arrived in control messages.
  [[nodiscard]] detail::texts& texts() noexcept { return texts_; }

  /// Seconds since an arbitrary start. The simulator's transport hides this function with one that returns virtual
  /// time.
  [[nodiscard]] static double now() noexcept {
    timespec t{}; // not <chrono>, which would lengthen the compile time of every program
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }

  // The start and the end of calls.

  /// Starts `call`, which already has a number, at the time `now` in seconds.
  void open(call_record& call, double now);
  /// Ends `call` at the time `now` in seconds.
  void finish(call_record& call, double now) noexcept;
  /// From now on, until `end_round`, the pool counts the memory requests of all calls together. The caller holds the
  /// rank's lock.
  void begin_round() noexcept {
    if (rounds_++ == 0 && !calls_.any() && subscribers_.empty()) memory().begin_call();
  }
  /// Ends a round. Also if another one is open, the pool begins a new count: no count grows without bound.
  void end_round() noexcept {
    --rounds_;
    memory().end_call();
  }
  /// Whether this rank has a call in flight or awaits an operation that has a deadline.
  [[nodiscard]] bool busy() const noexcept { return calls_.any() || waits_.any(); }

  /// Prepares the record of the name `which` for a collective that is about to start, and returns the record. Throws
  /// `invalid_argument` if `call_names::find` does, or if an earlier call with this name has not ended and the
  /// communicator is not dead.
  [[nodiscard]] detail::call_name& name_call(named which);
  /// The ring of the prefixes of names that belong to objects on this rank (see system/fused.hpp).
  [[nodiscard]] detail::link& prefixes() noexcept { return prefixes_; }
  /// Only on rank 0: assigns a number to `name`, and returns the text of the control message that sends this number to
  /// the other ranks.
  [[nodiscard]] std::string number_name(detail::call_name& name) { return names_.give_number(name); }

  // The operations that coroutines await: see endpoint/waits.hpp.

  void await(operation_record& r, std::coroutine_handle<> waiting) noexcept { waits_.await(r, waiting); }
  /// Makes the longest awaited operation of `call`, or of any call if `call` is null, fail with the error `why`.
  /// Returns false if none is awaited.
  bool fail_wait(const call_identity* call, const std::exception_ptr& why) {
    return waits_.fail_one(call != nullptr ? &call->sequence : nullptr, why, scheduler_);
  }
  /// Makes the longest awaited operation fail with the error `why`. Returns false if no operation is awaited.
  bool fail_wait(const std::exception_ptr& why) { return waits_.fail_longest(why, scheduler_); }

  /// Sets the deadline, that is, the number of seconds for which a call waits for a message before the call ends in
  /// `timeout`. Without an argument, the deadline is infinite. The initial deadline is 600 s. A wait begins when this
  /// rank first checks for the message. Throws `invalid_argument` if `seconds` is negative or NaN.
  void set_deadline(double seconds = std::numeric_limits<double>::infinity());
  /// The deadline in seconds (see `set_deadline`).
  [[nodiscard]] double deadline() const noexcept { return waits_.deadline(); }

  // Send buffers of failed calls that peers still read: see endpoint/loans.hpp.

  /// For a transport that cancels a send whose buffer a peer still reads: no failed call returns before `end_loan`.
  void begin_loan() noexcept { loans_.begin(memory()); }
  /// For a transport whose peer has finished reading a buffer that `begin_loan` has counted.
  void end_loan() noexcept { loans_.end(memory(), scheduler_); }
  /// Resumes the coroutine `waiting` when no peer reads a buffer of a failed call any more; `r` is the record of the
  /// wait.
  void await_loans(operation_record& r, std::coroutine_handle<> waiting) noexcept { loans_.await(r, waiting); }

  /// For a transport that can send the abort of this rank only while this rank makes progress: if the abort `goes_on`,
  /// the function `abort` makes progress until the transport calls `set_aborting(false)`.
  void set_aborting(bool goes_on) noexcept { is_aborting_ = goes_on; }
  /// Whether `abort` has to make progress: see `set_aborting`.
  [[nodiscard]] bool aborting() const noexcept { return is_aborting_; }

  // The failure of a rank: see endpoint/failure.hpp.

  /// Marks the communicator as dead because rank `who` has failed, for the reason `why`. Resumes all waiting
  /// coroutines, even though their operations have not completed.
  [[gnu::cold]] void mark_dead(rank_t who, std::string_view why) noexcept;

  /// Handles the control message `part`, with the purpose `abort`, `left`, `name` or `round`. The caller must handle
  /// all other purposes. Throws `corrupt_message` if the message has another purpose or invalid contents, and
  /// `invalid_argument` if it names a collective and 2048 names are in use.
  [[gnu::cold]] void on_control_message(const control_message& part);

  // Settings of the communicator.

  /// Turns checksums on or off (the default). With checksums, each message contains a checksum of its payload, which
  /// the receiver verifies, and a number, by which the receiver detects missing messages. Checksums cost one pass over
  /// the bytes sent and one over the bytes received. All ranks must use the same setting, and change the setting only
  /// between calls.
  void set_checksums(bool on) {
    const detail::rank_lock lock(rank_mutex_);
    checksums_ = on;
  }
  /// Whether checksums are on.
  [[nodiscard]] bool checksums() const noexcept { return checksums_; }

  /// The network model by which spar chooses algorithms, equal on all ranks (see communicator_rank::set_network).
  [[nodiscard]] const network_model& network() const noexcept { return network_; }
  /// Sets the network model to `network`, which must be equal on all ranks.
  void set_network(const network_model& network) noexcept { network_ = network; }

  // The lock of a rank that has a progress thread.

  /// The lock that the application shares with a progress thread; null if the rank has no progress thread.
  [[nodiscard]] detail::rank_mutex* shared() const noexcept { return rank_mutex_; }
  /// Makes the application share the rank with a progress thread by the lock `by`; null ends this.
  void share(detail::rank_mutex* by) noexcept {
    rank_mutex_ = by;
    memory().share(by != nullptr);
  }

  // Queries to peers about their calls: see runtime/peer_query.hpp.

  /// The question about a call whose answer this rank awaits from a peer; null if there is none.
  [[nodiscard]] detail::peer_question*& question() noexcept { return question_; }
  /// The question for what a peer waits, whose answer this rank awaits; null if there is none: see
  /// runtime/wait_errors.hpp.
  [[nodiscard]] detail::peer_question*& wait_question() noexcept { return wait_question_; }
  /// The endpoint of the rank `rank`, if this rank can read it directly, as in the simulator; null over other
  /// transports.
  [[nodiscard]] endpoint* neighbour(rank_t rank) noexcept { return neighbour_ ? neighbour_(*this, rank) : nullptr; }
  /// Whether `oldest_unreceived(look)` may find a message; false over transports that cannot tell.
  [[nodiscard]] bool may_have_unreceived(bool look) const noexcept {
    return unreceived_ != nullptr && (look || !unreceived_->empty());
  }
  /// Only if `may_have_unreceived(look)`: the message that has waited longest for a receive. If `look` is true, first
  /// looks for messages that have just arrived.
  [[nodiscard]] detail::unreceived_message oldest_unreceived(bool look) { return oldest_unreceived_(*this, look); }
  /// For a transport with a queue of messages that wait for a receive: `find(own, look)` is `oldest_unreceived(look)`.
  void set_unreceived(const detail::queue_ends& queue,
                      detail::unreceived_message (*find)(endpoint& own, bool look)) noexcept {
    unreceived_ = &queue;
    oldest_unreceived_ = find;
  }
  /// For a transport whose ranks can read each other's endpoints: `find(own, rank)` returns that of `rank`.
  void set_neighbours(endpoint* (*find)(endpoint& own, rank_t rank)) noexcept { neighbour_ = find; }

 private:
  [[noreturn, gnu::cold]] void raise_closed() const {
    raise<invalid_argument>({"rank ", rank_, " makes a call on a communicator that it has left by spar::leave; ",
                             "construct another communicator"});
  }

  rank_t rank_;
  rank_t size_;
  pool_owner pool_;
  spar::scheduler scheduler_;
  detail::call_table calls_;
  detail::call_names names_;
  detail::link prefixes_;
  detail::waits waits_;
  detail::loans loans_;
  bool is_aborting_ = false; // see set_aborting
  detail::failure failure_;
  detail::leavers leavers_;
  detail::control_subscribers subscribers_;
  detail::texts texts_;
  detail::rank_mutex* rank_mutex_ = nullptr;
  detail::peer_question* question_ = nullptr;
  detail::peer_question* wait_question_ = nullptr;
  endpoint* (*neighbour_)(endpoint& own, rank_t rank) = nullptr;
  const detail::queue_ends* unreceived_ = nullptr;
  detail::unreceived_message (*oldest_unreceived_)(endpoint& own, bool look) = nullptr;
  bool checksums_ = false;
  bool closed_ = false;
  std::uint16_t rounds_ = 0; // that have begun and not ended
  network_model network_;
};

} // namespace spar::inline v0_1

#ifndef SPAR_COMPILED
#include <spar/runtime/endpoint-inl.hpp>
#endif
