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
  threads_port(thread_group& group, rank_t rank, rank_t size, const thread_options& options);

  [[nodiscard]] endpoint& node() noexcept { return *this; }
  [[nodiscard]] const endpoint& node() const noexcept { return *this; }
  void compute(std::uint64_t) const noexcept {}
  [[nodiscard]] static device_path path_on_device(std::size_t, std::size_t) noexcept { return device_path::loaned; }

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
  operation<threads_port, expectation> receive(message_buffer& in, rank_t source, tag_t tag);

  void progress(bool block);
  void share() const noexcept {}
  /// Blocks until another rank has sent a message or a control message to this rank, or has finished reading a message
  /// that this rank sent, or until the `time` of the clock `now`, or until `wake` is called; at most for one hour.
  /// Returns true.
  bool sleep_until(double time);
  void wake();
  [[gnu::cold]] void post(const control_message& text, rank_t peer);

  /// Tells the other ranks that the program of this rank has ended.
  void leave() noexcept;
  /// Forgets which ranks have left, when the programs of all ranks have ended.
  void forget_leavers();
  [[nodiscard]] thread_group& group() noexcept { return *group_; }

  void abandon(shipment* s);
  void abandon(expectation* r) noexcept;

 private:
  void deliver(shipment* s, expectation* r);

  [[gnu::cold]] void check_both_on_device(const shipment& from, const message_buffer& to) const;

  static void give_back(void* lender) noexcept;

  /// Returns a note for a control message to this rank; null if this rank need not get the message. The caller holds
  /// `mutex_`.
  [[gnu::cold]] note* note_for(const control_message& text);

  void deposit(shipment* s);

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

  /// Returns this rank of a communicator of the ranks that go on after a failure: those that call `shrink`, in their
  /// old order, with the options, network model, deadline and checksums of this communicator. Aborts this communicator
  /// unless it is dead already, so that the others learn that they must call `shrink`, too. Waits for each rank until
  /// its program ends or it has been silent for the deadline. A rank that comes later gets `peer_failed`, for the
  /// others go on without it. The new communicator belongs to the group; a second `shrink` returns the same one. Throws
  /// `invalid_argument` in a coroutine that has waited for a call, because it blocks.
  [[nodiscard, gnu::cold]] threads& shrink();
};

/// A group of ranks in one process, each of which runs in its own thread.
class thread_group {
 public:
  /// Creates `size` ranks with these `options`. Throws `invalid_argument` if `size` is less than 1.
  [[gnu::cold]] explicit thread_group(rank_t size, const thread_options& options = {});
  thread_group(const thread_group&) = delete;
  ~thread_group();

  /// The number of ranks.
  [[nodiscard]] rank_t size() const noexcept { return static_cast<rank_t>(ranks_.size()); }
  /// The rank `r`, from 0 to size() - 1. Throws `invalid_argument` for any other `r`.
  [[nodiscard]] threads& rank(rank_t r) {
    detail::check_number(r, {0, static_cast<double>(size() - 1), "0 to size() - 1"}, "the rank");
    return ranks_[static_cast<std::size_t>(r)];
  }

  /// Runs `program(threads&)` for each rank in its own thread, and joins the threads. Rethrows the first error of
  /// any rank, for example one of the \ref call_errors, and throws `error` if the system cannot start a thread. After
  /// an error, the calls in which other ranks wait end in `peer_failed`; they may go on by `threads::shrink`. The group
  /// cannot be used again: another `run` throws `invalid_argument`.
  template <class Program>
  void run(Program&& program) {
    const auto call = [&program](threads& net) { program(net); };
    run_all([](const void* self, threads& net) { (*static_cast<const decltype(call)*>(self))(net); }, &call);
  }

 private:
  friend class threads;
  friend class threads_port;

  /// What is known of a rank when the others go on without those that are lost. Until `survivors_` exists, a rank that
  /// goes on may still be lost; afterwards nothing changes.
  enum class fate : unsigned char { unknown, goes_on, lost };

  /// The transport of the rank `r`, which the channel has checked.
  [[nodiscard]] threads_port& port(rank_t r) noexcept { return ranks_[static_cast<std::size_t>(r)].port(); }

  /// The code that is the same for all programs: `call(program, net)` calls one.
  void run_all(void (*call)(const void* self, threads& net), const void* program);

  /// Throws the error of another `run` after `first_error_`.
  [[noreturn, gnu::cold]] void refuse() const;

  /// Records the error `why` of the rank `r` and aborts, so that the other ranks do not wait for it.
  [[gnu::cold]] void fail(rank_t r, std::exception_ptr why) noexcept;

  /// The rank `r` of this group in the communicator of the survivors, to which it belongs. The caller holds `mutex_`.
  [[nodiscard, gnu::cold]] threads& survivor(rank_t r) noexcept;
  /// Returns the rank `r` among the ranks that call this function before `seconds` have passed. See `threads::shrink`.
  [[nodiscard, gnu::cold]] threads& shrink(rank_t r, double seconds);
  /// Called when the rank `r` makes no further calls: no rank waits for it in `shrink`.
  [[gnu::cold]] void depart(rank_t r) noexcept;
  /// Called when the program of the rank `r` has ended: no rank waits for it any more. Returns its last communicator.
  [[gnu::cold]] threads& end(rank_t r) noexcept;
  /// Forgets what the ranks have made of the group in the last run.
  [[gnu::cold]] void begin_run();
  /// Forgets who has left this group and those of its survivors.
  [[gnu::cold]] void forget_leavers();

  thread_options options_;
  fixed_vector<threads> ranks_;
  fixed_vector<fate> fates_;
  thread_group* survivors_ = nullptr; // of the ranks that go on
  detail::signal fate_is_known_;
  std::mutex mutex_; // of the following members, of `fates_` and of `survivors_`
  std::exception_ptr first_error_;
  bool error_is_first_ = false;
};

} // namespace spar::inline v0_1

#ifndef SPAR_COMPILED
#include <spar/transport/threads-inl.hpp>
#endif
