// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The transport over NCCL (experimental): large payloads travel by NCCL, everything else over another transport. Host
// code: any C++20 compiler with the headers of CUDA and NCCL; link CUDA's runtime and NCCL.
#pragma once

#include <spar/core/memory/record_queue.hpp>
#include <spar/core/memory/slab.hpp>
#include <spar/cuda/call.hpp>
#include <spar/cuda/runtime.hpp>
#include <spar/runtime/abort.hpp>
#include <spar/runtime/control_subscription.hpp>
#include <spar/runtime/operation.hpp>
#include <spar/runtime/pending.hpp>
#include <spar/runtime/tasks/task.hpp>
#include <spar/transport/decorator.hpp>
#include <spar/transport/nccl/agreement.hpp>
#include <spar/transport/nccl/communicator.hpp>
#include <spar/transport/nccl/memory.hpp>
#include <spar/transport/nccl/transfer.hpp>

#include <array>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <sched.h>

namespace spar::inline v0_1 {

/// Options of the transport `nccl`.
struct nccl_options {
  std::size_t eager_bytes = 4096; ///< payloads of at most this size travel over the control transport
};

/// The transport of `nccl`. A payload of more than `eager_bytes` bytes is announced over the transport Control; then
/// both ends agree on an epoch (see transport/nccl/agreement.hpp) by control messages, and submit the transfer to NCCL.
/// A payload in host memory travels from a page-locked buffer of the sender to a page-locked buffer of the receiver. A
/// payload in device memory travels from its place to a buffer in device memory; if it has several pieces, they are
/// first copied to one buffer in device memory.
template <transport Control>
class nccl_port : public decorated_port<Control> {
  using transfer = detail::nccl_transfer;
  using decorated_port<Control>::inner;

 public:
  using decorated_port<Control>::node;
  using decorated_port<Control>::now;
  using decorated_port<Control>::rank;
  using decorated_port<Control>::scheduler;
  using decorated_port<Control>::size;

  nccl_port(Control& control, const nccl_options& options)
      : decorated_port<Control>(control), options_(options), exceptions_(std::uncaught_exceptions()),
        home_(detail::or_abort(control, [] { return detail::home_device(); })),
        stream_(detail::or_abort(control, [] { return detail::device_stream(); })) {
    if (node().shared() != nullptr) {
      raise<invalid_argument>({"spar::nccl cannot wrap a communicator with a progress_thread, whose current device may "
                               "differ from that of this thread"});
    }
    try {
      if (node().dead()) node().failure().raise_peer_failed();
      ncclUniqueId id{};
      if (rank() == 0) id = detail::nccl_communicator::new_id();
      run_collective(inner(), detail::share_nccl_id::agreed, detail::share_nccl_id{}, &id);
      comm_.join(id, rank(), size());
      wait_for([this] { return comm_.call_has_ended(); }, "all ranks to create their spar::nccl");
      const auto receive_note = [](void* self, rank_t source, std::string_view text) {
        const auto note = detail::nccl_note::read(text.substr(0, sizeof(detail::nccl_note)));
        static_cast<nccl_port*>(self)->on_message(source, note, text.substr(sizeof(note)));
      };
      subscription_.emplace(node(), receive_note, this);
    } catch (...) {
      abort_and_rethrow(inner());
    }
  }
  nccl_port(const nccl_port&) = delete;
  ~nccl_port() {
    try {
      if (std::uncaught_exceptions() > exceptions_)
        detail::abort(inner(), "an exception has left the scope of a spar::nccl");
      if (!node().dead()) close();
    } catch (...) {
      detail::abort(inner(), std::current_exception());
    }
    end_device_work();
  }

  void share() = delete; // deleted because a progress thread would have another current device

  [[nodiscard]] static device_path path_on_device(std::size_t, std::size_t) noexcept { return device_path::streamed; }
  void check_device() { home_.check_current(inner(), "spar::nccl"); }
  /// Makes the device of this transport the current one until the returned object is destroyed.
  [[nodiscard]] auto make_current() const noexcept { return detail::home_device::scope(home_); }

  auto send(const message_pieces& out, rank_t peer, tag_t tag) {
    return detail::nccl_operation(failed_, tag, ship(out, peer, tag));
  }
  auto receive(message_buffer& in, rank_t peer, tag_t tag) {
    return detail::nccl_operation(failed_, tag, fetch(in, peer, tag));
  }

  /// Does not block while this rank has work for NCCL or transfers in flight, because only polling completes them.
  void progress(bool block) {
    const bool poll = block && has_device_work();
    inner().progress(block && !poll);
    work_on_transfers();
    scheduler().run();
    if (poll && has_device_work()) sched_yield();
  }

  /// Waits until NCCL works on no transfer of this rank, but resumes no coroutine; aborts after the deadline. Cannot
  /// deadlock: each rank answers offers meanwhile, and a rank that has not submitted its part of the least epoch in
  /// flight anywhere has nothing in flight, so it does not wait here.
  void wait_until_idle() noexcept {
    const scheduler::pause none_resumed(scheduler());
    try {
      wait_for([this] { return is_idle(); }, "NCCL to end its transfers");
    } catch (...) {
      detail::abort(inner(), std::current_exception());
      end_device_work();
    }
  }

  /// Called by an operation that is destroyed. A cancelled transfer goes on without its coroutine, because the peer may
  /// already count on it; only the failure of the communicator ends it.
  void abandon(transfer* t) {
    if (!t->done && !node().dead() && keep_payload(*t)) {
      t->cancelled = true;
      return;
    }
    if (!t->done) end_device_work();
    recycle(t);
  }

 private:
  /// The transfers that this rank has submitted as one group, which ends when `ended` is complete.
  struct group {
    std::uint64_t epoch = 0;
    detail::cuda_event ended;
    group* next = nullptr;
  };

  /// Called with the exception that ends an operation, which its call may await only later: aborts at once.
  [[noreturn, gnu::cold]] void fail(tag_t tag) {
    failed_.note(tag);
    abort_and_rethrow(inner());
  }

  task<void> ship(message_pieces out, rank_t peer, tag_t tag) {
    try {
      // No message may take the place of an earlier one that failed, which the call has not noticed yet.
      if (node().dead()) node().failure().raise_peer_failed();
      if (out.head.payload_bytes() <= options_.eager_bytes) {
        void* const copy = out.stream != nullptr ? memory_.to_host(out, [this] { wait_until_idle(); }) : nullptr;
        if (copy != nullptr && node().checksums()) out.add_payload_checksum();
        auto sending = inner().send(out, peer, tag);
        co_await sending;
        detail::recycled_memory::lease::give_back(copy); // not after a failure, because the peer may still read it
        co_return;
      }
      transfer* const t = begin(false, peer, tag, out.head, out.stream != nullptr);
      operation<nccl_port, transfer> sent(*this, t);
      t->pieces = out.pieces;
      if (t->on_device) t->ready.record(static_cast<cudaStream_t>(out.stream));
      transfers_.announce(*t, rank());

      detail::nccl_announcement announcement{.head = out.head, .id = t->id};
      announcement.checksum = announcement.expected_checksum();
      message_pieces envelope{out.head, {std::as_bytes(std::span(&announcement, 1))}};
      envelope.head.format = announcement.format;
      envelope.head.lengths = {sizeof(announcement), 0, 0};
      auto announcing = inner().send(envelope, peer, tag);
      co_await announcing;
      co_await sent;
    } catch (const peer_failed&) {
      throw;
    } catch (...) {
      fail(tag);
    }
  }

  task<void> fetch(message_buffer& in, rank_t peer, tag_t tag) {
    try {
      message_buffer envelope(this->memory());
      auto receiving = inner().receive(envelope, peer, tag);
      co_await receiving;
      in.arrived() = envelope.head();
      if (envelope.head().format != detail::nccl_announcement::format) {
        if (!in.fits()) co_return;
        in.check_sizes(envelope.pieces());
        if (in.on_device()) {
          if (node().checksums()) envelope.verify_payload();
          memory_.to_device(envelope.pieces(), in, [this] { wait_until_idle(); });
        } else {
          in.copy_from(envelope.pieces());
        }
        co_return;
      }
      const std::uint64_t id = read_announcement(envelope, in.arrived());
      envelope.release();
      if (!in.fits()) co_return; // the channel aborts the communicator
      transfer* const t = begin(true, peer, tag, in.head(), in.on_device());
      operation<nccl_port, transfer> received(*this, t);
      transfers_.offer(*t, id);
      notify(peer, detail::nccl_note::kind::offer, t->id, t->epoch);
      co_await received;
      detail::nccl_memory::deliver(*t, in);
    } catch (const peer_failed&) {
      throw;
    } catch (...) {
      fail(tag);
    }
  }

  /// Stores in `head` the header of the announced message, and returns the number of its transfer.
  std::uint64_t read_announcement(const message_buffer& envelope, header& head) {
    try {
      const auto announcement = detail::nccl_announcement::read(envelope.piece<std::byte>(0));
      head = announcement.head;
      return announcement.id;
    } catch (...) {
      abort_and_rethrow(inner());
    }
  }

  /// Returns the record of a new transfer, which gets its buffer when it is submitted.
  transfer* begin(bool receives, rank_t peer, tag_t tag, const header& head, bool on_device) {
    transfer* const t = records_.acquire();
    t->begin(receives, peer, tag);
    t->cancelled = false;
    t->bytes = detail::packed_bytes(head.lengths);
    t->on_device = on_device;
    return t;
  }
  /// Copies the payload of a transfer that is not submitted yet, because its operation is destroyed. Returns false, and
  /// aborts, if there is no memory. A payload in device memory exists until the transfer ends: see
  /// `device_path::streamed`.
  bool keep_payload(transfer& t) noexcept {
    if (t.receives || t.on_device || t.at == transfer::stage::submitted) return true;
    try {
      buffer<std::byte> copy(this->memory(), t.bytes);
      t.pieces = pack(t.pieces, copy.data());
      t.kept = std::move(copy);
      return true;
    } catch (...) {
      detail::abort(inner(), std::current_exception());
      return false;
    }
  }
  void recycle(transfer* t) noexcept {
    t->room = {};
    t->kept.reset();
    records_.recycle(t);
  }

  void notify(rank_t peer, detail::nccl_note::kind what, std::uint64_t id = 0, std::uint64_t epoch = 0) {
    const detail::nccl_note note{.subscriber = subscription_->number(), .what = what, .id = id, .epoch = epoch};
    inner().post(part_of(control_message::purpose::round, rank(), note.text(), 0), peer);
  }

  /// Called when this rank makes progress, whatever its coroutines wait for.
  void on_message(rank_t source, const detail::nccl_note& note, std::string_view calls) {
    using kind = detail::nccl_note::kind;
    if (node().dead()) return;
    if (note.what == kind::offer) {
      notify(source, kind::decision, note.id, transfers_.decide(source, note.id, note.epoch).epoch);
    } else if (note.what == kind::decision) {
      transfers_.learn(source, note.id, note.epoch);
    } else {
      ++arrived_[note.epoch % 2];
      if (note.epoch == 1 && !calls.empty()) node().leavers().add(source, calls).never_silent();
    }
    // Ends a blocking `progress` of the control transport, which over MPI otherwise waits for a message.
    scheduler().post(std::noop_coroutine());
  }

  [[nodiscard]] bool has_device_work() const noexcept {
    return launching_ != nullptr || !in_flight_.empty() || transfers_.has_due();
  }

  /// Completes transfers and submits epochs. If NCCL or CUDA fails, aborts, and all transfers end in the error.
  void work_on_transfers() noexcept {
    if (node().dead()) return end_device_work();
    try {
      if (!is_idle() && comm_.call_has_ended()) end_launch(); // also finds errors of transfers in flight
      while (!in_flight_.empty() && in_flight_.first()->ended.complete()) end(in_flight_.pop_front());
      while (launching_ == nullptr && transfers_.has_due() && get_buffers()) launch();
    } catch (...) {
      transfers_.set_error(std::current_exception());
      detail::abort(inner(), std::current_exception());
      end_device_work();
    }
  }
  [[nodiscard]] bool is_idle() const noexcept { return launching_ == nullptr && in_flight_.empty(); }

  /// Gives a buffer to each transfer of the next epoch that needs one. Returns false if the epoch must wait: new
  /// buffers are allocated only while NCCL works on no transfer of this rank, because an allocation may wait for the
  /// device, and then this rank would not answer the offers on which other ranks' parts of these transfers may depend.
  bool get_buffers() {
    transfers_.get_next(due_);
    for (transfer* t : due_) {
      if (memory_.give_room(*t, is_idle())) continue;
      for (transfer* other : due_) other->room = {};
      return false;
    }
    return true;
  }
  /// Submits the next epoch, whose transfers are in `due_` and have buffers.
  void launch() {
    group* const g = groups_.acquire();
    launching_ = g;
    for (transfer* t : due_) {
      if (!t->receives) detail::nccl_memory::collect(*t, stream_.get());
    }
    transfers_.submit(due_);
    g->epoch = due_.front()->epoch;
    comm_.submit(due_, stream_.get());
    if (comm_.call_has_ended()) end_launch();
  }
  /// Records the event of the group that NCCL has put into the stream; recorded earlier, it would be complete before
  /// the transfers.
  void end_launch() {
    if (launching_ == nullptr) return;
    launching_->ended.record(stream_.get());
    in_flight_.push_back(std::exchange(launching_, nullptr));
  }
  void end(group* g) {
    transfers_.end(g->epoch, [this](transfer& t) {
      t.complete(scheduler());
      if (t.cancelled) recycle(&t);
    });
    groups_.recycle(g);
  }

  /// Aborts the NCCL communicator, unless it is already freed. Afterwards the device uses no buffer of a transfer.
  void end_device_work() noexcept {
    if (comm_.joined()) {
      send_last_messages();
      comm_.abort();
      stream_.wait();
    }
    transfers_.end_all([this](transfer& t) {
      if (t.cancelled) recycle(&t);
    });
    if (launching_ != nullptr) groups_.recycle(std::exchange(launching_, nullptr));
    while (group* g = in_flight_.pop_front()) groups_.recycle(g);
  }

  /// Lets the control transport send the reason of a failure, because ncclCommAbort may wait for the peers, which abort
  /// once they have this reason.
  void send_last_messages() noexcept {
    const scheduler::pause none_resumed(scheduler());
    try {
      for (int polls = 0; polls < 100; ++polls) inner().progress(false);
    } catch (...) { // the communicator has failed already
    }
  }

  /// Frees the NCCL communicator and all buffers while no rank has transfers in flight, because freeing memory waits
  /// for the transfers of all ranks on the device, and keeps ranks of this process from starting their parts of these.
  void close() {
    wait_for([this] { return transfers_.empty(); }, "the transfers of cancelled operations to end");
    meet();
    comm_.finalize();
    wait_for([this] { return comm_.call_has_ended(); }, "NCCL to finalize its communicator");
    comm_.destroy();
    memory_.free();
    meet();
  }
  /// Waits until all ranks have come; a rank may be one meeting ahead. Not a collective, because other ranks may be in
  /// a call: if it waits for this rank, which has not made it, the call ends in `peer_failed`.
  void meet() {
    const detail::nccl_note note{subscription_->number(), detail::nccl_note::kind::arrival, 0, ++meetings_};
    detail::bounded_text text;
    text.add(note.text());
    text.add(node().calls_so_far().text());
    detail::broadcast_text(inner(), control_message::purpose::round, text.view());
    rank_t& arrived = arrived_[meetings_ % 2];
    wait_for([&] { return arrived == size() - 1; }, "all ranks to destroy their spar::nccl");
    arrived = 0;
    node().leavers().clear(); // the communicator goes on without this object
  }
  /// Makes progress until `done()` is true. Throws `peer_failed` if a rank fails, and `timeout` after the deadline.
  template <class Done>
  void wait_for(Done done, const char* what) {
    for (const double begin = now(); !done(); sched_yield()) {
      progress(false);
      if (node().dead()) node().failure().raise_peer_failed();
      if (now() - begin > node().deadline())
        raise<timeout>({"rank ", rank(), " has waited for ", node().deadline(), " s for ", what});
    }
  }

  nccl_options options_;
  int exceptions_; // number of uncaught exceptions at the construction
  detail::home_device home_;
  detail::nccl_memory memory_;
  detail::device_stream stream_; // contains nothing but the transfers and the copies of their payloads
  detail::nccl_communicator comm_;
  detail::slab<transfer> records_;
  detail::slab<group> groups_;
  detail::nccl_agreement transfers_;
  std::vector<transfer*> due_;      // the transfers of one group
  std::uint64_t meetings_ = 0;      // at which this rank has arrived
  std::array<rank_t, 2> arrived_{}; // number of other ranks at the meetings with even and with odd numbers
  group* launching_ = nullptr;      // submitted, but perhaps not yet in the stream
  detail::nccl_failure failed_;
  detail::record_queue<group> in_flight_;
  std::optional<detail::control_subscription> subscription_; // the last member: messages may use all others
};

/// Runs all collectives of spar on a communicator whose large payloads travel by NCCL, from page-locked memory to
/// page-locked memory or, with `on_device`, from device memory to device memory. The wrapped communicator, for example
/// an `mpi` or a `threads`, carries everything else, and must outlive this object. Each rank uses its own GPU,
/// which must be the current device whenever the rank uses this object; otherwise a call throws `invalid_argument`
/// before anything is sent. A call also throws it if a span, vector or stream of the call is in device memory. All
/// ranks must create, use and destroy their objects in the same order. The destructor waits for the other ranks, and
/// after the deadline aborts the wrapped communicator; call it only while no call is in flight on another `nccl`.
///
/// If ranks are threads of one process, device memory may be freed, and an `on_device` or `device_feedback` destroyed,
/// only when no rank is in a call: cudaFree waits for the transfers of all ranks on its GPU, and on GPUs that can
/// access it, and meanwhile no rank can start its part of a transfer.
///
/// If NCCL or CUDA fails on a rank, the calls of all ranks end in an error: on that rank in `nccl_error`, `cuda_error`
/// or `peer_failed`, on all others in `peer_failed`, or in the error by which their own NCCL notices the failure. Calls
/// make progress only while the program waits for, or polls, calls on this object, or calls `progress`. The deadline of
/// an operation begins when it starts, not when an algorithm first awaits it. Experimental: only one GPU has run it.
template <communicates Control>
class nccl : public communicator_rank<nccl_port<detail::port_type_of<Control>>> {
 public:
  /// Creates an NCCL communicator of all ranks, with these `options`. Throws `nccl_error`, `cuda_error`, `peer_failed`
  /// if another rank fails, `timeout` if another rank does not create its object before the deadline, and
  /// `invalid_argument` if `control` has a progress thread, or if the environment makes the calls of NCCL blocking.
  explicit nccl(Control& control, const nccl_options& options = {})
      : nccl::communicator_rank(detail::port_of(control), options) {}
};

} // namespace spar::inline v0_1
