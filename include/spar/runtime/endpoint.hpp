// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The state of one rank that is the same for every transport, in parts with one duty each.
#pragma once

#include <spar/core/error.hpp>
#include <spar/core/memory/buffer.hpp>
#include <spar/core/memory/pool.hpp>
#include <spar/core/network_model.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/endpoint/call_table.hpp>
#include <spar/runtime/endpoint/failure.hpp>
#include <spar/runtime/endpoint/loans.hpp>
#include <spar/runtime/endpoint/waits.hpp>
#include <spar/runtime/messages/control_dispatch.hpp>
#include <spar/runtime/messages/control_message.hpp>
#include <spar/runtime/messages/control_text.hpp>
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

namespace spar {

namespace detail {

/// What this rank has asked a peer, while it waits for the answer.
struct peer_question {
  rank_t peer;
  bool answered = false;
  bounded_text answer{};
};

} // namespace detail

/// Transports derive from this class; programs see it through `communicator`. Used by one thread at a time, which holds
/// the rank's lock where there are several.
class endpoint {
 public:
  endpoint(rank_t rank, rank_t size, const pool_owner& memory)
      : rank_(rank), size_(size), pool_(memory), scheduler_(*pool_), failure_(rank) {
    if (size < 1) raise<invalid_argument>({"a communicator needs at least one rank, not ", size});
  }
  endpoint(const endpoint&) = delete;
  ~endpoint() { memory().release(); }

  [[nodiscard]] rank_t rank() const noexcept { return rank_; }
  [[nodiscard]] rank_t size() const noexcept { return size_; }
  [[nodiscard]] spar::scheduler& scheduler() noexcept { return scheduler_; }
  [[nodiscard]] pool& memory() const noexcept { return *pool_; }

  // The parts.

  [[nodiscard]] detail::call_table& calls() noexcept { return calls_; }
  [[nodiscard]] const detail::call_table& calls() const noexcept { return calls_; }
  [[nodiscard]] detail::waits& waits() noexcept { return waits_; }
  [[nodiscard]] const detail::waits& waits() const noexcept { return waits_; }
  [[nodiscard]] const detail::loans& loans() const noexcept { return loans_; }
  [[nodiscard]] const detail::failure& failure() const noexcept { return failure_; }
  /// Whether a rank has failed: then no collective works on this communicator any more.
  [[nodiscard]] bool dead() const noexcept { return failure_.dead(); }
  /// Subscribers to control messages, by number.
  [[nodiscard]] detail::control_dispatch& dispatch() noexcept { return dispatch_; }
  /// The control messages that have arrived in part.
  [[nodiscard]] detail::texts& texts() noexcept { return texts_; }

  /// Seconds since some moment. The simulator overrides it with virtual time.
  [[nodiscard]] static double now() noexcept {
    timespec t{}; // <chrono> would cost every user more to compile
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }

  // Calls.

  /// A numbered call starts at the time `now`.
  [[gnu::noinline]] void open(call_record& call, double now) {
    if (checksums_) {
      call.messages = buffer<std::uint8_t>(memory(), 2 * max_lanes * static_cast<std::size_t>(size_));
      std::fill(call.messages.data(), call.messages.data() + call.messages.size(), std::uint8_t{0});
    }
    const bool first = calls_.open(call, now);
    // What a partial collective does between its rounds counts with them.
    if (first && dispatch_.empty()) memory().begin_call();
  }
  /// The call has ended at the time `now`.
  [[gnu::noinline]] void finish(call_record& call, double now) noexcept {
    calls_.finish(call, now);
    memory().end_call();
    call.messages.reset();
  }
  /// Whether a call is in flight.
  [[nodiscard]] bool busy() const noexcept { return calls_.any() || waits_.any(); }

  /// The name of a collective that is about to start. Throws `invalid_argument` where one of that name has not ended.
  [[nodiscard]] detail::call_name& name_call(named which) {
    detail::call_name& name = names_.find(which.text);
    if (name.in_flight && !dead()) {
      raise<invalid_argument>({"the collective named ", name.text, " has not ended: it cannot start again"});
    }
    name.begin(true, 0, -1);
    return name;
  }
  /// Rank 0 gives a name its number. Returns the text for the other ranks.
  [[nodiscard]] std::string number_name(detail::call_name& name) { return names_.give_number(name); }

  // Waiting: see `waits`.

  void await(detail::operation_record& r, std::coroutine_handle<> waiting) noexcept { waits_.await(r, waiting); }
  double expire_waits(double now) { return waits_.expire(now, rank_, scheduler_); }
  bool fail_wait(const call_record& call, const std::exception_ptr& why) {
    return waits_.fail_one(call.sequence, why, scheduler_);
  }

  /// Seconds for which an awaited message may stay away before its call ends in `timeout`; 600 unless set, infinite
  /// without the argument. Counted from the first time that the rank looks for the message.
  void set_deadline(double seconds = std::numeric_limits<double>::infinity()) {
    const detail::rank_lock lock(rank_mutex_);
    waits_.set_deadline(seconds);
  }
  [[nodiscard]] double deadline() const noexcept { return waits_.deadline(); }

  // Buffers that peers still read: see `loans`.

  void begin_loan() noexcept { loans_.begin(memory()); }
  void end_loan() noexcept { loans_.end(memory(), scheduler_); }
  void await_loans(detail::operation_record& r, std::coroutine_handle<> waiting) noexcept { loans_.await(r, waiting); }

  // Failure.

  /// The communicator is dead from now on, because rank `who` has failed. Waiting coroutines resume, and find that
  /// their operations are not done.
  [[gnu::noinline, gnu::cold]] void mark_dead(rank_t who, std::string_view why) noexcept {
    if (dead()) return;
    failure_.set(who, why);
    waits_.wake_all(scheduler_);
  }

  /// Handles a control message. Throws `corrupt_message` for one that no rank sends.
  [[gnu::noinline, gnu::cold]] void on_control_message(const control_message& part) {
    using purpose = control_message::purpose;
    if (part.what == purpose::round) {
      const detail::bounded_text* const text = texts_.add(part);
      if (text != nullptr) dispatch_.hear(part.source, text->view());
    } else if (part.what == purpose::name) {
      if (part.source != 0) raise<corrupt_message>({"a rank other than 0 numbers a collective"});
      names_.take_number({part.text.data(), part.length}).complete(scheduler_);
    } else if (part.what == purpose::abort) {
      if (failure_.append(part)) mark_dead(part.source, failure_.take_reason());
    } else { // the others are for the transport
      raise<corrupt_message>({"a control message means nothing to this rank"});
    }
  }

  // Options.

  /// Whether messages carry a checksum of their payload, which the receiver verifies, and their number, by which the
  /// receiver sees that a message is missing. The same on every rank, set between calls. Off unless set; costs a pass
  /// over the bytes sent and a pass over the bytes received.
  void set_checksums(bool on) {
    const detail::rank_lock lock(rank_mutex_);
    checksums_ = on;
  }
  [[nodiscard]] bool checksums() const noexcept { return checksums_; }

  /// The model of the network by which algorithms are chosen, the same on every rank; `spar::set_network` changes it.
  [[nodiscard]] const network_model& network() const noexcept { return network_; }
  void set_network(const network_model& network) noexcept { network_ = network; }

  // The threads of a rank.

  /// The lock that the application shares with a progress thread; null where there is only one thread.
  [[nodiscard]] detail::rank_mutex* shared() const noexcept { return rank_mutex_; }
  void share(detail::rank_mutex* by) noexcept {
    rank_mutex_ = by;
    memory().share(by != nullptr);
  }

  // Questions to peers about their calls: see peer_query.hpp.

  /// The question whose answer this rank waits for; null where there is none.
  [[nodiscard]] detail::peer_question* question() const noexcept { return question_; }
  void ask(detail::peer_question* what) noexcept { question_ = what; }
  /// The endpoint of another rank, which a rank of the simulator can read; null elsewhere.
  [[nodiscard]] endpoint* neighbour(rank_t rank) noexcept { return neighbour_ ? neighbour_(*this, rank) : nullptr; }
  void set_neighbours(endpoint* (*find)(endpoint& own, rank_t rank)) noexcept { neighbour_ = find; }

 private:
  rank_t rank_;
  rank_t size_;
  pool_owner pool_;
  spar::scheduler scheduler_;
  detail::call_table calls_;
  detail::call_names names_;
  detail::waits waits_;
  detail::loans loans_;
  detail::failure failure_;
  detail::control_dispatch dispatch_;
  detail::texts texts_;
  detail::rank_mutex* rank_mutex_ = nullptr;
  detail::peer_question* question_ = nullptr;
  endpoint* (*neighbour_)(endpoint& own, rank_t rank) = nullptr;
  bool checksums_ = false;
  network_model network_;
};

} // namespace spar
