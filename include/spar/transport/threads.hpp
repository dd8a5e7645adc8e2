// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The transport between the threads of one process, one rank per thread. Unless sends are synchronous, payloads of up
// to 4096 bytes are copied to a buffer; the receiver reads all other payloads directly from the memory of the sender.
#pragma once

#include <spar/core/check_number.hpp>
#include <spar/core/memory/fixed_vector.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/core/util/atomic.hpp>
#include <spar/core/util/thread.hpp>
#include <spar/runtime/abort.hpp>
#include <spar/runtime/communicator_rank.hpp>
#include <spar/runtime/endpoint.hpp>
#include <spar/runtime/matching.hpp>
#include <spar/runtime/operation.hpp>
#include <spar/runtime/progress.hpp>

#include <array>
#include <cstddef>
#include <exception>
#include <mutex>

#include <sched.h>

namespace spar::inline v0_1 {

/// Options of a `thread_group`.
struct thread_options {
  /// If true, a send ends only when its message has been received, even if the payload is at most 4096 bytes long.
  bool synchronous = false;
  /// Upstream resource of the memory pool of each rank. All ranks use the resource at the same time, so the resource
  /// must be thread-safe.
  std::pmr::memory_resource* memory = std::pmr::new_delete_resource();
};

class thread_group;

/// The transport of one rank of a `thread_group`.
class threads_port : public endpoint {
 public:
  threads_port(thread_group& group, rank_t rank, rank_t size, const thread_options& options)
      : endpoint(rank, size, pool_owner(*options.memory)), group_(&group), synchronous_(options.synchronous),
        shipments_(4 * static_cast<std::size_t>(size) + 16), spare_notes_(2 * static_cast<std::size_t>(size) + 64),
        checks_(size <= detail::processors() ? 50 : 0) {
    set_unreceived(matching_.arrivals(), [](endpoint& own, bool look) {
      auto& port = static_cast<threads_port&>(own);
      if (look) port.collect();
      return port.matching_.oldest_arrival();
    });
    leavers().set_late(0); // `collect` handles the messages of a rank together with the news that the rank has left
  }

  [[nodiscard]] endpoint& node() noexcept { return *this; }
  [[nodiscard]] const endpoint& node() const noexcept { return *this; }
  void compute(std::uint64_t) const noexcept {}
  [[nodiscard]] static device_path path_on_device(std::size_t) noexcept { return device_path::loaned; }

 private:
  static constexpr std::size_t buffered_bytes = 4096;
  enum class offer { open, taken, withdrawn };

  /// A message in flight. The record belongs to the sender; the receiver returns the record after reading the payload.
  struct shipment : operation_record {
    shipment* next = nullptr;
    threads_port* owner = nullptr;
    rank_t source = 0;
    header head;
    payload_views pieces{};
    device_loan* loan = nullptr; // not null if the pieces are in device memory
    detail::atomic<offer> state{offer::open};
    bool awaited = false; // whether an operation of the sender refers to this record
    bool left = false;    // whether the sender has abandoned the operation, but the receiver may still read the payload
    alignas(16) std::array<std::byte, buffered_bytes> storage;
  };

  struct note {
    control_message text;
    note* next = nullptr;
  };

  struct expectation : operation_record {
    expectation* next = nullptr;
    message_buffer* into = nullptr;
  };

 public:
  operation<threads_port, shipment> send(const message_pieces& out, rank_t peer, tag_t tag);

  operation<threads_port, expectation> receive(message_buffer& in, rank_t source, tag_t tag) {
    expectation* r = expectations_.acquire();
    r->begin(true, source, tag);
    r->into = &in;
    if (shipment* s = matching_.post(r)) deliver(s, r);
    return operation<threads_port, expectation>(*this, r);
  }

  void progress(bool block);
  void share() const noexcept {}
  /// Blocks until another rank has sent a message or a control message to this rank, or has finished reading a message
  /// that this rank sent, or until the `time` of the clock `now`, or until `wake` is called; at most for one hour.
  void sleep_until(double time);
  void wake() {
    const std::lock_guard lock(mutex_);
    woken_ = true;
    signal_.notify_all();
  }
  void post(const control_message& text, rank_t peer);

  /// Tells the other ranks that the program of this rank has ended.
  void leave() noexcept {
    const detail::rank_lock lock(shared());
    detail::tell_left(*this);
  }
  /// Forgets which ranks have left, when the programs of all ranks have ended.
  void forget_leavers() {
    const detail::rank_lock lock(shared());
    collect();
    leavers().clear();
  }

  void abandon(shipment* s) {
    const bool taken = !s->done && !s->state.replace(offer::open, offer::withdrawn);
    if (taken) collect(); // the receiver may already have returned `s`
    if (s->done) return shipments_.recycle(s);
    s->awaited = false; // `collect` recycles `s` when the receiver has returned `s`
    if (!taken) return;
    s->left = true;
    begin_loan();
  }

  void abandon(expectation* r) noexcept {
    if (!r->done) matching_.withdraw(r);
    expectations_.recycle(r);
  }

 private:
  void deliver(shipment* s, expectation* r) {
    // The exchange fails if the sender has withdrawn the message after a failure. The receive then gets the next
    // message.
    if (!s->state.replace(offer::open, offer::taken)) {
      s->loan = nullptr; // the sender may already have destroyed it
      give_back(s);
      if (shipment* next = matching_.post(r)) deliver(next, r);
      return;
    }
    try {
      r->into->arrived() = s->head;
      if (!r->into->fits()) {
        give_back(s);
      } else if (s->loan != nullptr || r->into->on_device()) {
        check_both_on_device(*s, *r->into);
        r->into->borrow(s->pieces, &give_back, s, s->loan);
      } else if (r->into->kept()) {
        r->into->copy_from(s->pieces);
        give_back(s);
      } else {
        r->into->borrow(s->pieces, &give_back, s);
      }
      r->complete(scheduler());
    } catch (...) {
      give_back(s);
      r->fail(scheduler(), std::current_exception());
    }
  }

  [[gnu::cold]] void check_both_on_device(const shipment& from, const message_buffer& to) const {
    if (from.loan != nullptr && to.on_device()) return;
    constexpr const char* space[] = {"host memory", "device memory"};
    raise<mismatch>({"rank ", from.source, " sends values in ", space[from.loan != nullptr], ", but rank ", rank(),
                     " receives values in ", space[to.on_device()],
                     ": among threads, either all ranks or none must use spar::on_device for a call"});
  }

  static void give_back(void* lender) noexcept {
    auto* s = static_cast<shipment*>(lender);
    if (s->loan != nullptr) s->loan->returned(*s->loan);
    threads_port& owner = *s->owner;
    const std::lock_guard lock(owner.mutex_);
    owner.returned_.push_back(s);
    owner.signal_.notify_all();
  }

  /// Returns a note for a control message to this rank; null if this rank need not get the message. The caller holds
  /// `mutex_`.
  [[gnu::cold]] note* note_for(const control_message& text) {
    if (text.what != control_message::purpose::abort) return spare_notes_.acquire();
    if (aborted_by_ < 0) aborted_by_ = text.source;
    if (text.source != aborted_by_ || abort_parts_ == abort_notes_.size()) return nullptr;
    return &abort_notes_[abort_parts_++];
  }

  void deposit(shipment* s) {
    const std::lock_guard lock(mutex_);
    incoming_.push_back(s);
    signal_.notify_all();
  }

  /// Handles what other ranks have put into the queues of this rank: messages, control messages, and messages of this
  /// rank that their receivers have returned. Returns whether a message arrived or a coroutine can resume.
  bool collect();

  thread_group* group_;
  bool synchronous_;
  detail::slab<shipment> shipments_; // room for the messages of two calls, because receivers may return messages late
  detail::slab<expectation> expectations_;
  matching<shipment, expectation> matching_;

  // Other ranks put new messages, returned messages and control messages into the following queues, which `mutex_`
  // protects.
  std::mutex mutex_;
  bool woken_ = false;
  detail::signal signal_;
  detail::record_queue<shipment> incoming_;
  detail::record_queue<shipment> returned_;
  detail::record_queue<note> notes_;
  detail::slab<note> spare_notes_;
  // The reason of the first abort by another rank, for which a note is always free. Later aborts change nothing.
  std::array<note, control_message::most_parts> abort_notes_;
  std::size_t abort_parts_ = 0; // the number of `abort_notes_` in use
  rank_t aborted_by_ = -1;

  std::uint32_t polls_ = 0;
  // How often a wait looks for messages before the thread sleeps: for 2 to 3 us, less than it takes to sleep and to
  // wake up. Not at all if there are more ranks than processors, because another rank may need this one.
  int checks_;
};

/// One rank of a `thread_group`, used by one thread and, optionally, a `progress_thread`.
class threads : public communicator_rank<threads_port> {
 public:
  /// Called by the constructor of `thread_group`.
  threads(thread_group& group, rank_t rank, rank_t size, const thread_options& options)
      : communicator_rank(group, rank, size, options) {}
};

/// A group of ranks in one process, each of which runs in its own thread.
class thread_group {
 public:
  /// Creates `size` ranks with these `options`. Throws `invalid_argument` if `size` is less than 1.
  [[gnu::cold]] explicit thread_group(rank_t size, const thread_options& options = {})
      : ranks_(*std::pmr::new_delete_resource(), static_cast<std::size_t>(size < 1 ? 0 : size)) {
    detail::check_number(size, {1, detail::valid::greatest, "at least one rank"}, "the size of a thread_group");
    for (rank_t r = 0; r < size; ++r) ranks_.emplace_back(*this, r, size, options);
  }
  thread_group(const thread_group&) = delete;
  ~thread_group() { detail::end_calls_of_all(ranks_); }

  /// The number of ranks.
  [[nodiscard]] rank_t size() const noexcept { return static_cast<rank_t>(ranks_.size()); }
  /// The rank `r`, from 0 to size() - 1. Throws `invalid_argument` for any other `r`.
  [[nodiscard]] threads& rank(rank_t r) {
    detail::check_number(r, {0, static_cast<double>(size() - 1), "0 to size() - 1"}, "the rank");
    return ranks_[static_cast<std::size_t>(r)];
  }

  /// Runs `program(threads&)` for each rank in its own thread, and joins the threads. Rethrows the first error of
  /// any rank, for example one of the \ref call_errors, and throws `error` if the system cannot start a thread. After
  /// an error, the calls in which other ranks wait end in `peer_failed`, and the group cannot be used again: another
  /// `run` throws `invalid_argument`.
  template <class Program>
  void run(Program&& program) {
    const auto call = [&program](threads& net) { program(net); };
    run_all([](const void* self, threads& net) { (*static_cast<const decltype(call)*>(self))(net); }, &call);
  }

 private:
  friend class threads_port;

  /// The transport of the rank `r`, which the channel has checked.
  [[nodiscard]] threads_port& port(rank_t r) noexcept { return ranks_[static_cast<std::size_t>(r)].port(); }

  /// The code that is the same for all programs: `call(program, net)` calls one.
  void run_all(void (*call)(const void* self, threads& net), const void* program) {
    if (first_error_) refuse();
    fixed_vector<detail::thread> running(*std::pmr::new_delete_resource(), ranks_.size());
    try {
      for (auto& r : ranks_) {
        running.emplace_back([this, call, program, &net = r] {
          try {
            call(program, net);
            net.port().leave();
          } catch (...) {
            fail(net, std::current_exception());
          }
        });
      }
    } catch (...) { // the system cannot start another thread
      fail(ranks_[running.size()], std::current_exception());
    }
    for (auto& t : running) t.join();
    for (auto& r : ranks_) r.port().forget_leavers();
    if (first_error_) std::rethrow_exception(first_error_);
  }

  /// Throws the error of another `run` after `first_error_`.
  [[noreturn, gnu::cold]] void refuse() const {
    raise<invalid_argument>({"this thread_group has failed, and cannot run again; construct another one. Its error: ",
                             detail::message_of(first_error_).c_str()});
  }

  /// Records the error `why` of the rank `net` and aborts, so that the other ranks do not wait for `net`.
  [[gnu::cold]] void fail(threads& net, std::exception_ptr why) noexcept {
    // If another rank has failed before, the error of this rank is only a consequence, unless this rank has noticed
    // that the other rank has left.
    const detail::bounded_text text = detail::message_of(why);
    const bool first = !net.dead() || net.failed_rank() == net.rank() || text.view() == net.port().failure().reason();
    {
      const std::lock_guard lock(mutex_);
      if (!first_error_ || (first && !error_is_first_)) {
        first_error_ = why;
        error_is_first_ = first;
      }
    }
    abort(net, text.view());
  }

  fixed_vector<threads> ranks_;
  std::mutex mutex_;
  std::exception_ptr first_error_;
  bool error_is_first_ = false;
};

inline operation<threads_port, threads_port::shipment> threads_port::send(const message_pieces& out, rank_t peer,
                                                                          tag_t tag) {
  shipment* s = shipments_.acquire();
  s->begin(false, peer, tag);
  s->owner = this;
  s->source = rank();
  s->head = out.head;
  s->left = false;
  s->state = offer::open;

  s->loan = out.loan;
  s->awaited = synchronous_ || out.loan != nullptr || padded_bytes(out.pieces) > buffered_bytes;
  s->pieces = s->awaited ? out.pieces : pack(out.pieces, s->storage.data());
  const bool awaited = s->awaited; // a copy: after `deposit`, the receiver may return `s`
  group_->port(peer).deposit(s);
  return operation<threads_port, shipment>(*this, awaited ? s : nullptr);
}

[[gnu::cold]] inline void threads_port::post(const control_message& text, rank_t peer) {
  threads_port& to = group_->port(peer);
  const std::lock_guard lock(to.mutex_);
  note* const n = to.note_for(text);
  if (n == nullptr) return;
  n->text = text;
  to.notes_.push_back(n);
  to.signal_.notify_all();
}

inline void threads_port::sleep_until(double time) {
  const double until = std::min(time, now() + 3600);
  const std::lock_guard lock(mutex_);
  while (incoming_.empty() && returned_.empty() && notes_.empty() && !woken_ && now() < until) {
    signal_.wait(mutex_, until);
  }
  woken_ = false;
}

inline bool threads_port::collect() {
  detail::record_queue<shipment> arrived;
  detail::record_queue<note> notes;
  {
    const std::lock_guard lock(mutex_);
    arrived.swap(incoming_);
    notes.swap(notes_);
    while (shipment* s = returned_.pop_front()) {
      if (s->left) end_loan();
      if (s->awaited)
        s->complete(scheduler());
      else
        shipments_.recycle(s);
    }
  }
  while (note* n = notes.pop_front()) {
    const control_message text = n->text;
    {
      const std::lock_guard lock(mutex_);
      spare_notes_.recycle(n);
    }
    try {
      spar::on_control_message(*this, text);
    } catch (...) {
      on_progress_error(*this);
    }
  }
  const bool any = !arrived.empty() || !scheduler().idle();
  while (shipment* s = arrived.pop_front()) {
    if (expectation* r = matching_.arrive(s)) deliver(s, r);
  }
  return any;
}

inline void threads_port::progress(bool block) {
  try {
    bool news = collect();
    for (int i = 0; block && i < checks_ && !news && scheduler().idle(); ++i) {
      detail::pause();
      news = collect();
    }
    if (block && !news && scheduler().idle() && (!dead() || loans().any() || scheduler().polls())) {
      const double until = spar::poll_waits(*this, now());
      if (scheduler().polls())
        sched_yield(); // nothing would end the sleep
      else if (scheduler().idle())
        sleep_until(until);
      collect();
    } else if (!block || ++polls_ % 256 == 0) { // in every `progress(false)`, because the next call may be much later
      spar::poll_waits(*this, now());
    }
  } catch (...) {
    on_progress_error(*this);
  }
  scheduler().run();
}

} // namespace spar::inline v0_1
