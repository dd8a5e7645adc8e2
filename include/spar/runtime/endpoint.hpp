// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What every transport has on each rank: a scheduler, a pool, the numbering of its collectives, statistics, what is
// waited for and for how long, and whether the communicator is still alive.
#pragma once

#include <spar/core/error.hpp>
#include <spar/core/memory/buffer.hpp>
#include <spar/core/memory/pool.hpp>
#include <spar/core/memory/slab.hpp>
#include <spar/core/network_model.hpp>
#include <spar/core/statistics.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/messages/call_names.hpp>
#include <spar/runtime/messages/control_dispatch.hpp>
#include <spar/runtime/messages/control_message.hpp>
#include <spar/runtime/messages/control_text.hpp>
#include <spar/runtime/messages/message.hpp>
#include <spar/runtime/tasks/rank_mutex.hpp>
#include <spar/runtime/tasks/scheduler.hpp>
#include <spar/runtime/tasks/wait_list.hpp>

#include <array>
#include <atomic>
#include <bitset>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include <time.h>

namespace spar {

namespace detail {

/// Says what an object is: an algorithm with its options.
struct description {
  const void* object = nullptr;
  void (*write)(const void* object, bounded_text& to) = nullptr;
};

/// What this rank has asked a peer, while it waits for the answer.
struct question {
  rank_t peer;
  bool answered = false;
  bounded_text answer{};
};

} // namespace detail

/// The identity of a call, which error messages need after the call has ended.
struct call_identity {
  signature agreed;
  std::uint64_t sequence = 0;
  std::string_view chosen{}; // the algorithm that it has chosen, if any
};

/// The record of one call while it is in flight.
struct call_record : call_identity, detail::link {
  detail::description describe{}; // of the algorithm, where it has a name
  statistics cost;
  double started = 0;
  detail::call_name* name = nullptr; // of a call that has one
  buffer<std::uint8_t> messages;     // so far to and from each rank on each lane, where payloads are checked
  call_record* next = nullptr;
};

/// The state of one rank that is the same on every transport; transports derive from it.
class endpoint {
 public:
  endpoint(rank_t rank, rank_t size, const pool_owner& memory)
      : rank_(rank), size_(size), pool_(memory), scheduler_(*pool_) {
    if (size < 1) raise<invalid_argument>({"a communicator needs at least one rank, not ", size});
  }
  endpoint(const endpoint&) = delete;
  ~endpoint() { memory().release(); }

  [[nodiscard]] rank_t rank() const noexcept { return rank_; }
  [[nodiscard]] rank_t size() const noexcept { return size_; }
  [[nodiscard]] spar::scheduler& scheduler() noexcept { return scheduler_; }
  [[nodiscard]] pool& memory() const noexcept { return *pool_; }

  /// Costs of the call that finished last, and of all finished calls together.
  [[nodiscard]] const spar::statistics& last_call() const noexcept { return last_; }
  [[nodiscard]] const spar::statistics& statistics() const noexcept { return total_; }

  /// Seconds since some moment; the simulator overrides it with virtual time.
  [[nodiscard]] static double now() noexcept {
    timespec t{}; // <chrono> would cost every user more to compile
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }

  /// True where the tags of a numbered collective are still used by an earlier one.
  [[nodiscard]] bool full(const call_record& call) const noexcept { return in_flight_[call.sequence % max_in_flight]; }

  /// When the last call began or ended.
  [[nodiscard]] double seen() const noexcept { return seen_; }
  /// Whether this rank has not called for long, and others may have given it up; asked once.
  [[nodiscard]] bool comes_back(double now) noexcept { return now - std::exchange(seen_, now) > 0.5; }

  /// Gives a collective its number: before anything else happens, so that ranks number in the same order.
  void number(call_record& call) noexcept {
    if (call.name != nullptr) {
      call.sequence = call.name->calls++ * max_in_flight + call.name->number;
    } else {
      call.sequence = next_ / detail::first_named * max_in_flight + next_ % detail::first_named;
      ++next_;
    }
  }
  /// A numbered collective starts at time `now`.
  [[gnu::noinline]] void open(call_record& call, double now) {
    if (checksums_) {
      call.messages = buffer<std::uint8_t>(memory(), 2 * max_lanes * static_cast<std::size_t>(size_));
      std::fill(call.messages.data(), call.messages.data() + call.messages.size(), std::uint8_t{0});
    }
    call.started = now;
    seen_ = now;
    in_flight_.set(call.sequence % max_in_flight);
    call.join_before(calls_in_flight_);
    const bool between = !dispatch_.empty(); // what a partial collective does between its rounds counts with them
    if (open_++ == 0 && !between) memory().begin_call();
  }
  /// The collective has ended at time `now`: its tags are free.
  [[gnu::noinline]] void finish(call_record& call, double now) noexcept {
    in_flight_.reset(call.sequence % max_in_flight);
    call.leave();
    last_ended_ = call;
    if (call.name != nullptr) call.name->in_flight = false;
    --open_;
    memory().end_call();
    seen_ = now;
    call.messages.reset();
    call.cost.seconds = now - call.started;
    last_ = call.cost;
    total_ += call.cost;
  }

  /// A collective has failed. If it is the one that ended last, its options are kept, as its algorithm goes: ranks that
  /// disagree may ask for them later.
  [[gnu::noinline, gnu::cold]] void keep_options(const call_record& call) noexcept {
    if (call.sequence != last_ended_.sequence || call.describe.write == nullptr) return;
    failed_options_.shrink(0);
    call.describe.write(call.describe.object, failed_options_);
    failed_sequence_ = call.sequence;
  }
  /// What has been kept of the call of that number, if it is the one that failed last.
  [[nodiscard]] detail::description kept_options(std::uint64_t sequence) const noexcept {
    if (failed_options_.empty() || sequence != failed_sequence_) return {};
    return {&failed_options_, [](const void* text, detail::bounded_text& to) {
              to.add(static_cast<const detail::bounded_text*>(text)->view());
            }};
  }

  /// Seconds for which an awaited message may stay away before the call ends in `timeout`; 600 unless set, infinite
  /// without the argument. Counted from the first look for it.
  void set_deadline(double seconds = infinity) {
    const detail::rank_lock lock(rank_mutex_);
    deadline_ = seconds;
  }
  [[nodiscard]] double deadline() const noexcept { return deadline_; }

  /// Whether messages carry a checksum of their payload, which the receiver verifies, and their number, by which it
  /// sees that one is missing: the same on every rank, set between calls. Off unless set; it costs a pass over what is
  /// sent and over what is received.
  void set_checksums(bool on) {
    const detail::rank_lock lock(rank_mutex_);
    checksums_ = on;
  }
  [[nodiscard]] bool checksums() const noexcept { return checksums_; }

  /// The model of the network by which algorithms are chosen, the same on every rank; `set_network` changes it.
  [[nodiscard]] const network_model& network() const noexcept { return network_; }

  /// Whether a rank has failed: then nothing collective works on this communicator any more.
  [[nodiscard]] bool dead() const noexcept { return dead_; }
  /// The rank that failed first, as far as this rank knows.
  [[nodiscard]] rank_t failed_rank() const noexcept { return failed_rank_; }
  /// Throws `peer_failed` with the rank that failed and its reason.
  [[noreturn, gnu::noinline, gnu::cold]] void throw_peer_failed() const {
    raise<peer_failed>({"rank ", failed_rank_, failed_rank_ == rank_ ? " (this rank)" : "",
                        " failed, so its communicator is dead: ", reason_.data()});
  }

  // For transports and calls.

  /// What all ranks have agreed on, or the transport knows.
  void know(const network_model& network) noexcept { network_ = network; }

  /// What the threads that use this rank take turns by; a null pointer where there is only one.
  [[nodiscard]] detail::rank_mutex* shared() const noexcept { return rank_mutex_; }
  void share(detail::rank_mutex* by) noexcept {
    rank_mutex_ = by;
    memory().share(by != nullptr);
  }
  /// Whether a call is in flight.
  [[nodiscard]] bool busy() const noexcept { return open_ > 0 || awaits(); }

  /// A coroutine waits for an operation.
  void await(detail::operation_record& r, std::coroutine_handle<> waiting) noexcept { waiting_.add(r, waiting); }
  [[nodiscard]] bool awaits() const noexcept { return waiting_.first() != nullptr; }

  /// A coroutine waits for what somebody may do some time: no deadline runs.
  void await_idly(detail::operation_record& r, std::coroutine_handle<> waiting) noexcept { idle_.add(r, waiting); }
  [[nodiscard]] bool awaits_idly() const noexcept { return idle_.first() != nullptr; }
  /// Who is told control messages by number.
  [[nodiscard]] detail::control_dispatch& dispatch() noexcept { return dispatch_; }

  /// From now on the communicator is dead: whoever waits is resumed, and finds its operation not done.
  [[gnu::noinline, gnu::cold]] void mark_dead(rank_t who, std::string_view why) noexcept {
    if (dead_) return;
    failed_rank_ = who;
    reason_[why.copy(reason_.data(), max_text_length)] = '\0';
    dead_ = true;
    while (detail::operation_record* r = waiting_.first()) r->wake(scheduler_);
    while (detail::operation_record* r = idle_.first()) r->wake(scheduler_);
  }

  // Memory that others still read although the call that lent it has failed: nothing waits for it while it unwinds, as
  // those others may be unwinding too and wait for this rank. It stays as it is until all of it is back, and no call
  // ends before. Who waits for it has aborted.
  [[nodiscard]] bool lends() const noexcept { return lent_ > 0; }
  void begin_loan() noexcept {
    ++lent_;
    memory().hold();
  }
  void end_loan_of_peer() noexcept {
    if (--lent_ > 0) return;
    memory().release();
    while (detail::operation_record* r = lenders_.first()) r->wake(scheduler_);
  }
  /// A coroutine waits until nothing is lent.
  void await_loans(detail::operation_record& r, std::coroutine_handle<> waiting) noexcept { lenders_.add(r, waiting); }

  /// The name of a collective that is about to start. Throws `invalid_argument` where one of that name has not ended.
  [[nodiscard]] detail::call_name& name_call(named which) {
    detail::call_name& name = names_.find(which.text);
    if (name.in_flight && !dead_) {
      raise<invalid_argument>({"the collective named ", name.text, " has not ended: it cannot start again"});
    }
    name.begin(true, 0, -1);
    return name;
  }
  /// Rank 0 gives a name its number; the text that tells the others.
  [[nodiscard]] std::string number_name(detail::call_name& name) { return names_.give_number(name); }

  /// A control message has arrived. Throws `corrupt_message` for one that nobody can have sent.
  [[gnu::noinline, gnu::cold]] void on_control_message(const control_message& part) {
    if (part.what == control_message::purpose::round) {
      const detail::bounded_text* const text = texts_.add(part);
      if (text != nullptr) dispatch_.hear(part.source, text->view());
      return;
    }
    if (part.what == control_message::purpose::name) {
      if (part.source != 0) raise<corrupt_message>({"a rank other than 0 numbers a collective"});
      names_.take_number({part.text.data(), part.length}).complete(scheduler_);
      return;
    }
    if (part.what != control_message::purpose::abort) { // it is for the transport
      raise<corrupt_message>({"a control message means nothing to this rank"});
    }
    if (arrived_ > 0 && part.source != arriving_from_) return; // one failure is enough
    arriving_from_ = part.source;
    const std::size_t length = std::min<std::size_t>(part.length, max_text_length - arrived_);
    std::memcpy(arriving_.data() + arrived_, part.text.data(), length);
    arrived_ += length;
    if (part.last != 0) mark_dead(part.source, {arriving_.data(), std::exchange(arrived_, 0)});
  }

  /// The call in flight whose number is this, modulo `max_in_flight`; a null pointer where there is none.
  [[nodiscard]] call_record* call_of(std::uint64_t sequence) noexcept {
    for (detail::link* l = &calls_in_flight_.after(); l != &calls_in_flight_; l = &l->after()) {
      auto* const call = static_cast<call_record*>(l);
      if (call->sequence % max_in_flight == sequence % max_in_flight) return call;
    }
    return nullptr;
  }
  /// The call that ended last.
  [[nodiscard]] const call_identity& last_ended() const noexcept { return last_ended_; }
  /// The texts of control messages that have come in part.
  [[nodiscard]] detail::texts& texts() noexcept { return texts_; }
  /// What this rank waits to be told, or a null pointer.
  [[nodiscard]] detail::question* asking() const noexcept { return asking_; }
  void ask(detail::question* what) noexcept { asking_ = what; }
  /// The endpoint of another rank, which a rank of the simulator can read; a null pointer elsewhere.
  [[nodiscard]] endpoint* neighbour(rank_t rank) noexcept { return neighbour_ ? neighbour_(*this, rank) : nullptr; }
  void know_neighbours(endpoint* (*find)(endpoint& own, rank_t rank)) noexcept { neighbour_ = find; }
  /// What coroutines wait for, but idly.
  [[nodiscard]] detail::waiting_list& waiting() noexcept { return waiting_; }
  /// Ends what is awaited in a call in an error; false where nothing is.
  bool end_wait(const call_record& call, const std::exception_ptr& why) {
    for (auto* r = waiting_.first(); r != nullptr; r = waiting_.after(*r)) {
      if (r->tag < 0 || sequence_of(r->tag) != call.sequence % max_in_flight) continue;
      r->error = why;
      r->wake(scheduler_);
      return true;
    }
    return false;
  }

  /// The time, `now`, at which what is awaited longest is given up; looks after those that wait anew. Ends it where
  /// that time is over.
  double expire_waits(double now) {
    for (auto* r = waiting_.last(); r != nullptr && r->since < 0; r = waiting_.before(*r)) r->since = now;
    detail::operation_record* longest = waiting_.first();
    if (longest == nullptr) return now + deadline_;
    const double until = longest->since + deadline_; // in one place: rounded twice, it could be over and not be
    if (now >= until) expire(*longest);
    return until;
  }

  /// A record for a call that outlives the scope it was started in; `recycle` takes it back.
  [[nodiscard]] call_record& acquire() {
    call_record& call = *calls_.acquire();
    call.cost = {};
    call.name = nullptr;
    call.chosen = {};
    return call;
  }
  void recycle(call_record& call) noexcept { calls_.recycle(&call); }

 private:
  static constexpr double infinity = std::numeric_limits<double>::infinity();

  [[gnu::noinline, gnu::cold]] void expire(detail::operation_record& r) noexcept {
    try {
      if (r.tag < 0) {
        raise<timeout>({"rank ", rank_, " has waited for ", deadline_, " s for rank 0 to start the collective named ",
                        static_cast<detail::call_name&>(r).text});
      }
      raise<timeout>({"rank ", rank_, " has waited for ", deadline_, " s for a message ", r.receives ? "from" : "to",
                      " rank ", r.peer, r.receives ? "" : " to be received", " (collective ", sequence_of(r.tag),
                      ", lane ", static_cast<unsigned>(lane_of(r.tag)), ")"});
    } catch (...) {
      r.error = std::current_exception();
    }
    r.wake(scheduler_);
  }

  rank_t rank_;
  rank_t size_;
  pool_owner pool_;
  spar::scheduler scheduler_;
  std::uint64_t next_ = 0;
  std::uint64_t open_ = 0; // calls that have not ended
  std::bitset<max_in_flight> in_flight_;
  detail::link calls_in_flight_;
  detail::slab<call_record> calls_;
  detail::call_names names_;
  call_identity last_ended_;
  std::uint64_t failed_sequence_ = 0;
  detail::bounded_text failed_options_; // empty until a call fails
  spar::statistics last_;
  spar::statistics total_;
  detail::waiting_list waiting_;
  detail::waiting_list idle_;
  detail::waiting_list lenders_;
  std::size_t lent_ = 0; // messages
  detail::control_dispatch dispatch_;
  detail::texts texts_;
  detail::question* asking_ = nullptr;
  endpoint* (*neighbour_)(endpoint& own, rank_t rank) = nullptr;
  double seen_ = 0; // when the last call began or ended
  detail::rank_mutex* rank_mutex_ = nullptr;
  double deadline_ = 600;
  bool checksums_ = false;
  network_model network_;
  std::atomic<bool> dead_ = false; // an application may ask while a progress thread works
  rank_t failed_rank_ = -1;
  rank_t arriving_from_ = -1;
  std::size_t arrived_ = 0; // characters of a peer's reason, of which further parts will come
  std::array<char, max_text_length + 1> reason_{};
  std::array<char, max_text_length> arriving_;
};

} // namespace spar
