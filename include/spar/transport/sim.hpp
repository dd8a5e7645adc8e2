// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The simulator: runs any number of ranks as coroutines on one thread, in virtual time over simulated links. Two runs
// of a program with the same options, including the seed, process the same events in the same order.
#pragma once

#include <spar/core/check_number.hpp>
#include <spar/core/memory/fixed_vector.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/core/util/splitmix.hpp>
#include <spar/runtime/communicator_rank.hpp>
#include <spar/runtime/endpoint.hpp>
#include <spar/runtime/peer_query.hpp>
#include <spar/runtime/progress.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/transport/sim/cores.hpp>
#include <spar/transport/sim/deadlock_report.hpp>
#include <spar/transport/sim/events.hpp>
#include <spar/transport/sim/network.hpp>
#include <spar/transport/sim/options.hpp>
#include <spar/transport/sim/port.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace spar::inline v0_1 {

/// One rank of a `simulator`. Calls on a simulated rank have no deadline unless `set_deadline` sets one, in virtual
/// seconds.
class sim : public communicator_rank<sim_port> {
 public:
  /// Called by the constructor of `simulator`.
  sim(simulator& engine, rank_t rank, rank_t size, const pool_owner& memory)
      : communicator_rank(engine, rank, size, memory) {}
};

/// A simulated machine: contains the ranks, the links between the ranks, and the queue of events.
class simulator {
 public:
  /// A message that has arrived.
  struct trace_entry {
    double time;         ///< time of arrival, in virtual seconds
    rank_t source;       ///< the rank that sent the message
    rank_t destination;  ///< the rank that received the message
    tag_t tag;           ///< the tag of the message
    std::uint64_t bytes; ///< size of the payload, without the header
    friend bool operator==(const trace_entry&, const trace_entry&) = default;
  };

  /// Creates `size` ranks. Throws `invalid_argument` if `size` is less than 1, if an option is out of range, or if the
  /// tree in `options` is malformed or has a number of ranks other than `size`.
  explicit simulator(rank_t size, const simulator_options& options = {})
      : options_(detail::sim_network::checked(options, size)), network_(options_, size),
        ranks_(*std::pmr::new_delete_resource(), static_cast<std::size_t>(size < 1 ? 0 : size)),
        cores_(options.cores < size ? static_cast<std::size_t>(options.cores) : 0), shipments_(messages(size)),
        events_(3 * messages(size), control_message::most_parts * static_cast<std::size_t>(size < 1 ? 0 : size)),
        jitter_(options_.jitter, options_.seed) {
    // All ranks run on one thread, so they can share one memory pool, in which a rank reuses memory that another rank
    // has freed.
    const pool_owner memory(*options.memory, static_cast<std::uint32_t>(size));
    for (rank_t r = 0; r < size; ++r) ranks_.emplace_back(*this, r, size, memory);
  }
  simulator(const simulator&) = delete;
  ~simulator() { detail::end_calls_of_all(ranks_); }

  /// The number of ranks.
  [[nodiscard]] rank_t size() const noexcept { return static_cast<rank_t>(ranks_.size()); }
  /// The rank `r`, from 0 to size() - 1. Throws `invalid_argument` for any other `r`.
  [[nodiscard]] sim& rank(rank_t r) {
    detail::check_number(r, {0, static_cast<double>(size() - 1), "0 to size() - 1"}, "the rank");
    return ranks_[static_cast<std::size_t>(r)];
  }
  /// The options with which the simulator was created.
  [[nodiscard]] const simulator_options& options() const noexcept { return options_; }

  /// The virtual time, in seconds, of the rank whose clock has advanced furthest.
  [[nodiscard]] double time() const noexcept {
    double latest = 0;
    for (const auto& r : ranks_) latest = std::max(latest, r.port().clock_);
    return latest;
  }
  /// The messages that have arrived, in order of arrival. Empty unless `simulator_options::record` is true.
  [[nodiscard]] const std::vector<trace_entry>& trace() const noexcept { return trace_; }

  /// Starts the coroutine `program(sim&)`, which returns a `task<void>`, on every rank, and returns when the coroutines
  /// of all ranks have ended. Rethrows the first error of any rank, for example `invalid_argument` or one of the \ref
  /// call_errors. Throws `deadlock` if no rank can make progress; the error message lists which rank waits for a
  /// message from which rank. Throws `error` if a program blocks instead of using `co_await`.
  template <class Program>
  void run(Program&& program) {
    const auto call = [&program](sim& net) -> task<void> { return program(net); };
    run_all([](const void* self, sim& net) { return (*static_cast<const decltype(call)*>(self))(net); }, &call);
  }

 private:
  friend class sim_port;

  using event_kind = detail::sim_event_kind;
  using event_queue = detail::sim_events<sim_port, sim_port::shipment>;

  /// The transport of the rank `r`, which the channel has checked.
  [[nodiscard]] sim_port& port(rank_t r) noexcept { return ranks_[static_cast<std::size_t>(r)].port(); }

  /// The code that is the same for all programs: `call(program, net)` starts one.
  void run_all(task<void> (*call)(const void* self, sim& net), const void* program) {
    std::vector<std::optional<task<void>>> programs(ranks_.size());
    for (auto& r : ranks_) schedule({r.port().clock_, event_kind::start, &r.port(), nullptr}, hash(r.rank(), -1, 0));
    const auto start = [&](rank_t r) {
      static_cast<void>(programs[static_cast<std::size_t>(r)].emplace(call(program, rank(r))));
    };
    inside_ = true;
    try {
      for (std::size_t ended = 0; ended < programs.size();) {
        sim& last = ranks_[static_cast<std::size_t>(step(start))];
        auto& coroutine = programs[static_cast<std::size_t>(last.rank())];
        const bool done = coroutine && coroutine->done();
        // First rethrows the coroutine's error, if any, because `misuse_` may have been set while the coroutine
        // unwound.
        if (done) coroutine->result();
        if (!misuse_.empty()) throw error(misuse_);
        if (!done) continue;
        coroutine.reset();
        ++ended;
        last.port().has_left_ = !last.dead() && !last.port().busy();
      }
    } catch (...) {
      inside_ = false;
      misuse_.clear();
      events_.clear();
      for (auto& net : ranks_) {
        sim_port& r = net.port();
        r.matching_.arrivals().clear();
        r.notes_.clear();
        r.sleepers_.clear();
        r.deadline_scheduled_ = false;
      }
      forget_leavers();
      throw;
    }
    inside_ = false;
    forget_leavers();
  }
  void forget_leavers() noexcept {
    for (auto& r : ranks_) {
      r.port().has_left_ = false;
      r.port().leavers().clear();
    }
  }
  /// Makes a wait of the rank `net` fail if the program of the rank for which it waits has ended without taking part.
  /// Called without events, when no message can be in flight any more, so that `late` is 0, or at a deadline.
  bool fail_wait_for_leaver(sim_port& net, double late) {
    detail::waiting_list& waiting = net.waits().active();
    for (auto* r = waiting.first(); r != nullptr; r = waiting.after(*r)) {
      const sim_port& peer = port(r->tag < 0 ? 0 : r->peer);
      if (peer.has_left_) net.leavers().add(peer.rank(), peer.calls_so_far().text());
    }
    net.leavers().set_late(late);
    return net.leavers().any() && detail::fail_wait_for_leaver(net, now_);
  }

  /// The number of messages in flight for which the simulator reserves memory: two on each lane from each rank to each
  /// rank, one for each of two calls in flight, but at most 64 per rank.
  static constexpr std::size_t messages(rank_t size) noexcept {
    const auto ranks = static_cast<std::size_t>(size);
    return ranks * std::min<std::size_t>(2 * max_lanes * ranks, 64);
  }

  void schedule(const event_queue::event& e, std::uint64_t tie) { events_.schedule(e, options_.seed != 0 ? tie : 0); }

  /// A hash of the seed and of a message's source, destination and tag; if the seed is not 0, events at the same time
  /// happen in the order of their hashes. Messages that must stay in order have the same source, destination and tag,
  /// and therefore equal hashes.
  [[nodiscard]] std::uint64_t hash(rank_t source, rank_t destination, tag_t tag) const noexcept {
    using detail::splitmix;
    return splitmix(splitmix(splitmix(options_.seed ^ static_cast<std::uint32_t>(source)) ^
                             static_cast<std::uint32_t>(destination)) ^
                    static_cast<std::uint32_t>(tag));
  }

  void ask_everyone() {
    for (sim& r : ranks_) detail::ask(r.port());
  }
  /// Processes the next event, resumes the coroutines of the rank that the event concerns, and returns the number of
  /// this rank. Calls `start(rank)` if the event is the start of a program. Throws `deadlock` if no event is left.
  template <class Start>
  rank_t step(const Start& start) {
    if (events_.empty()) ask_everyone();
    if (events_.empty()) {
      for (sim& r : ranks_) {
        if (!fail_wait_for_leaver(r.port(), 0)) continue;
        r.port().scheduler().run();
        return r.rank();
      }
      throw deadlock(detail::sim_deadlock_report(ranks_));
    }
    const event_queue::event e = events_.pop();
    now_ = e.time;
    sim_port& rank = *e.rank;
    rank.memory().charge(rank.requests_);
    switch (e.kind) {
    case event_kind::start:
      start(rank.rank());
      break;
    case event_kind::leave:
    case event_kind::reach:
      transmit(*e.message);
      break;
    case event_kind::left:
      rank.complete(*e.message);
      drop(e.message);
      break;
    case event_kind::arrive:
      if (options_.record) {
        trace_.push_back({e.time, e.message->source, rank.rank(), e.message->tag, e.message->head.payload_bytes()});
      }
      if (sim_port::expectation* r = rank.matching_.arrive(e.message)) rank.deliver(e.message, r);
      break;
    case event_kind::control: {
      const auto first = detail::least_of(rank.notes_, [](const auto& note) { return note.time; });
      const control_message note = first->text;
      rank.notes_.erase(first);
      if (rank.waits().any() || rank.waits().any_idle()) rank.clock_ = std::max(rank.clock_, now_);
      spar::on_control_message(rank, note);
      break;
    }
    case event_kind::awake: {
      const auto first = detail::least_of(rank.sleepers_, [](const auto& sleeper) { return sleeper.until; });
      if (first == rank.sleepers_.end() || first->until > now_) break; // the coroutine was destroyed while it slept
      rank.scheduler().post(first->program);
      rank.sleepers_.erase(first);
      rank.clock_ = std::max(rank.clock_, now_);
      break;
    }
    case event_kind::deadline:
      rank.check_deadline();
      break;
    case event_kind::alarm:
      rank.clock_ = std::max(rank.clock_, now_);
      if (rank.alarm_ != nullptr) rank.alarm_(rank.alarm_context_);
      break;
    }
    rank.scheduler().run();
    return rank.rank();
  }

  /// Handles the arrival of the message `m` at a link. Schedules the arrival of `m` at the next link or at its
  /// receiver. At the first link of the path, also schedules the event that `m` has left the link, unless sends are
  /// synchronous.
  void transmit(sim_port::shipment& m) {
    const std::uint64_t tie = hash(m.source, m.peer, m.tag);
    const bool first = !m.way.begun;
    const auto [left, next, arrives] = network_.pass(now_, m.way, m.source, m.peer, m.head.payload_bytes());
    if (first && !options_.synchronous) schedule({left, event_kind::left, m.sender, &m}, tie);
    const double then = arrives ? jitter_.delayed(next, tie, events_.scheduled()) : next;
    schedule({then, arrives ? event_kind::arrive : event_kind::reach, &port(m.peer), &m}, tie);
  }

  void drop(sim_port::shipment* m) noexcept {
    if (--m->holders > 0) return;
    m->payload.reset();
    shipments_.recycle(m);
  }
  static void give_back(void* lender) noexcept {
    auto* m = static_cast<sim_port::shipment*>(lender);
    m->sender->engine_->drop(m);
  }

  simulator_options options_;
  detail::sim_network network_;
  fixed_vector<sim> ranks_;
  detail::sim_cores cores_;
  detail::slab<sim_port::shipment> shipments_;
  event_queue events_;
  detail::sim_jitter jitter_;
  std::vector<trace_entry> trace_;
  double now_ = 0; // the virtual time of the current event, in seconds
  bool inside_ = false;
  // The error message for a program that blocks or destroys a pending call. `run` throws the error, because a
  // destructor cannot throw.
  std::string misuse_;
};

inline void sim_port::compute(std::uint64_t entries) noexcept {
  clock_ = engine_->cores_.done_at(clock_, static_cast<double>(entries) * engine_->options_.compute);
}

inline sim_port::sim_port(simulator& engine, rank_t rank, rank_t size, const pool_owner& memory)
    : endpoint(rank, size, memory), engine_(&engine) {
  notes_.reserve(64 + control_message::most_parts);
  set_deadline(); // no deadline: the simulator detects a deadlock at once
  set_neighbours([](endpoint& own, rank_t r) -> endpoint* { return &static_cast<sim_port&>(own).engine_->port(r); });
  set_unreceived(matching_.arrivals(),
                 [](endpoint& own, bool) { return static_cast<sim_port&>(own).matching_.oldest_arrival(); });
  const simulator_options& o = engine.options_;
  const auto [alpha, beta] = engine.network_.message();
  // Encoding an entry, or decoding it, takes as long as a merge: half of what network_model's default expects, but the
  // simulated results in docs/results were recorded with it.
  set_network({alpha + o.overhead, beta, o.compute, o.compute, 2 * o.compute, alpha});
}

inline void sim_port::complete(operation_record& ended) {
  if (ended.waiting) clock_ = std::max(clock_, engine_->now_);
  ended.complete(scheduler());
}

inline operation<sim_port, sim_port::shipment> sim_port::send(const message_pieces& out, rank_t peer, tag_t tag) {
  shipment* s = engine_->shipments_.acquire();
  s->begin(false, peer, tag);
  s->source = rank();
  s->head = out.head;
  s->sender = this;
  s->way = {};
  // Copies the payload. Without a copy, the send would end only when the receiver releases the buffer, so the virtual
  // time of the sender would depend on the receiver.
  s->payload = buffer<std::byte>(memory(), padded_bytes(out.pieces));
  s->pieces = pack(out.pieces, s->payload.data());
  s->holders = 3; // references from the operation, the event `left`, and the network or the receiver's buffer
  engine_->schedule({clock_, simulator::event_kind::leave, this, s}, engine_->hash(rank(), peer, tag));
  return operation<sim_port, shipment>(*this, s);
}

inline operation<sim_port, sim_port::expectation> sim_port::receive(message_buffer& in, rank_t source, tag_t tag) {
  expectation* r = expectations_.acquire();
  r->begin(true, source, tag);
  r->into = &in;
  if (shipment* s = matching_.post(r)) deliver(s, r);
  return operation<sim_port, expectation>(*this, r);
}

inline void sim_port::deliver(shipment* s, expectation* r) {
  if (engine_->options_.synchronous) {
    const double received = std::max(clock_, engine_->now_);
    engine_->schedule({received, simulator::event_kind::left, s->sender, s}, engine_->hash(s->source, s->peer, s->tag));
  }
  try {
    r->into->arrived() = s->head;
    if (!r->into->fits()) {
      engine_->drop(s);
    } else if (r->into->kept()) {
      r->into->copy_from(s->pieces);
      engine_->drop(s);
    } else {
      r->into->borrow(s->pieces, &simulator::give_back, s);
    }
    complete(*r);
  } catch (...) {
    engine_->drop(s);
    r->error = std::current_exception();
    complete(*r);
  }
}

inline void sim_port::post(const control_message& note, rank_t peer) {
  sim_port& to = engine_->port(peer);
  const bool aborts = note.what == control_message::purpose::abort;
  if (aborts && to.aborted_by_ < 0) to.aborted_by_ = rank();
  if (aborts && to.aborted_by_ != rank()) return;
  if (!aborts && to.notes_.size() + control_message::most_parts >= to.notes_.capacity())
    to.notes_.reserve(2 * to.notes_.capacity());
  const double undelayed = clock_ + engine_->network_.latency(rank(), peer);
  const double arrival =
      engine_->jitter_.delayed(undelayed, engine_->hash(rank(), peer, -1), engine_->events_.scheduled());
  to.notes_.push_back({arrival, note});
  engine_->events_.schedule({arrival, simulator::event_kind::control, &to, nullptr}, 0, aborts);
}

inline void sim_port::wake_at(double time) {
  engine_->schedule({time, simulator::event_kind::alarm, this, nullptr}, 0);
}

inline void sim_port::sleeping::await_suspend(std::coroutine_handle<> program) {
  program_ = program;
  net_->sleepers_.push_back({until_, program});
  net_->engine_->schedule({until_, simulator::event_kind::awake, net_, nullptr}, 0);
}

inline void sim_port::await(operation_record& r, std::coroutine_handle<> waiting) {
  endpoint::await(r, waiting);
  r.since = clock_;
  if (deadline_scheduled_ || deadline() == std::numeric_limits<double>::infinity()) return;
  deadline_scheduled_ = true;
  engine_->schedule({clock_ + deadline(), simulator::event_kind::deadline, this, nullptr}, 0);
}

inline void sim_port::check_deadline() {
  deadline_scheduled_ = false;
  if (!waits().any()) return;
  const double time = engine_->now_;
  clock_ = std::max(clock_, time);
  if (engine_->fail_wait_for_leaver(*this, std::numeric_limits<double>::infinity())) return;
  const double until = waits().expire(time, [this](operation_record& r) { detail::time_out(*this, r); });
  if (until <= time) return;
  deadline_scheduled_ = true;
  engine_->schedule({until, simulator::event_kind::deadline, this, nullptr}, 0);
}

inline void sim_port::abandon(shipment* s) noexcept { engine_->drop(s); }

inline void sim_port::progress(bool block) {
  if (engine_->inside_ && !block) return; // only `run` may process events while programs run
  if (engine_->inside_) {
    engine_->misuse_ =
        sentence("rank ", rank(), " blocks inside a simulated program or destroys a pending call that has not ended;",
                 " all ranks share one thread, so co_await the call instead");
    throw error(engine_->misuse_);
  }
  if (block || !engine_->events_.empty()) engine_->step([](rank_t) {});
}

} // namespace spar::inline v0_1
