// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The transport of an MPI rank: non-blocking point-to-point messages on a communicator of spar's own.
#pragma once

#include <spar/core/util/algobase.hpp>
#include <spar/runtime/messages/envelope.hpp>
#include <spar/runtime/operation.hpp>
#include <spar/runtime/progress.hpp>
#include <spar/transport/mpi/communicator.hpp>
#include <spar/transport/mpi/control.hpp>
#include <spar/transport/mpi/departures.hpp>
#include <spar/transport/mpi/device_memory.hpp>
#include <spar/transport/mpi/segments.hpp>
#include <spar/transport/mpi/wait_set.hpp>

#include <sched.h>

#include <cstddef>
#include <exception>
#include <limits>
#include <new>
#include <utility>

namespace spar::inline v0_1 {

/// The transport of one rank of an MPI communicator. A message begins with an envelope, which contains the header and a
/// payload of up to 4 KiB. A larger payload follows in segments, which are sent from the caller's memory under the same
/// tag. The receiver learns the size of the payload from the envelope without MPI_Probe, and the size may exceed the
/// range of MPI's int. Control messages use a separate communicator. A waiting rank polls MPI, so that it notices when
/// a peer fails or falls silent; after 128 polls, the rank yields its core to other threads between polls.
class mpi_port : public endpoint {
 public:
  /// Collective over `ranks`. All memory is taken before `join`.
  mpi_port(detail::mpi_founders&& ranks, const mpi_options& options, const network_model& network)
      : endpoint(ranks.rank(), ranks.size(), pool_owner(*options.memory)), comm_(detail::owned_communicator::none()),
        control_(size()), options_(options), segments_(size()), owners_(room()),
        departing_(static_cast<std::size_t>(size()), room()),
        requests_(room() * detail::mpi_segments::window) { // reserved memory takes no pages until it is used
    set_network(network);
    comm_ = ranks.join();
    auto of_control_messages = detail::owned_communicator::duplicate(comm_.get());
    segments_.agree(comm_.get(), options.segment_bytes);
    control_.open(std::move(of_control_messages), *this);
  }

  /// Waits for the last messages of this rank to leave, and tells the other ranks that this rank has left, without
  /// waiting for them. If the communicator is dead, also discards incoming messages until all ranks have announced that
  /// their messages have left or have been given up. Gives up after one second.
  ~mpi_port() {
    if (detail::mpi_is_finalised()) return;
    const double end = patience();
    try {
      const detail::calls_of_leaver calls = calls_so_far();
      // Polls for 50 microseconds, to notice a peer that has just failed.
      for (const double soon = now() + 5e-5; size() > 1 && !dead() && now() < soon;) try_poll_control();
      for (;; sched_yield()) {
        look_after_leaving();
        try_poll_control();
        if (dead()) drain();
        if (departing_.count() == 0)
          control_->end_with(control_message::purpose::left, dead() ? std::string_view() : calls.text());
        if (now() >= end || (departing_.count() == 0 && (!dead() || control_->all_have_ended()))) break;
      }
    } catch (...) { // a destructor cannot report that the last messages have not left
    }
    control_->end_with(control_message::purpose::gone, ""); // unless this rank has left
    const bool lost = lost_ || departing_.count() > 0;
    if (lost_) departing_.keep_forever(); // MPI may still write to an envelope
    control_.retire(std::move(comm_), dead(), lost, deadline());
  }

  void share() const { detail::require_thread_multiple(); }
  /// A payload that is part of the envelope is staged, because the processor writes the envelope.
  [[nodiscard]] device_path path_on_device(std::size_t bytes, std::size_t) const noexcept {
    const bool takes = options_.device_memory && bytes > enclosed_bytes && detail::mpi_takes_device_memory();
    return takes ? device_path::direct : device_path::staged;
  }

  [[nodiscard]] endpoint& node() noexcept { return *this; }
  [[nodiscard]] const endpoint& node() const noexcept { return *this; }
  [[nodiscard]] const detail::owned_communicator& communicator() const noexcept { return comm_; }
  [[nodiscard]] const mpi_options& options() const noexcept { return options_; }
  /// A barrier over all ranks; throws `peer_failed` or `timeout`, see `mpi_control::meet`.
  void meet() {
    control_->meet(*this, [this] { poll_control(); });
  }
  /// Whether the rank `peer` has left, in order or after a failure.
  [[nodiscard]] bool has_left(rank_t peer) const noexcept { return control_->has_left(peer); }
  void compute(std::uint64_t) const noexcept {}
  /// The time in seconds from MPI_Wtime, which returns virtual time if a simulator runs the MPI program.
  [[nodiscard]] static double now() noexcept { return MPI_Wtime(); }

 private:
  struct request_owner;

  using departures = detail::mpi_departures<request_owner>;
  using envelope = departures::envelope;

  /// A send or receive in flight, which owns requests in the wait set.
  struct request_owner : operation_record {
    request_owner* next = nullptr;
    std::size_t outstanding = 0;    // number of requests of this operation that have not completed
    envelope* cover = nullptr;      // the envelope of the message
    std::size_t piece = max_pieces; // index of the piece that contains the next segment to post
    std::size_t at = 0;             // byte offset of the next segment in its piece
    std::size_t posted = 0;         // number of segments posted so far
    payload_views pieces{};         // sends only: the payload
    bool cancelled = false;         // sends only: whether the operation has failed while MPI still reads the payload
    bool opened = false;            // receives only: whether the envelope has arrived
    message_buffer* into = nullptr; // receives only: the destination
  };
  using wait_set = detail::mpi_wait_set<request_owner>;

  // If a message that is sent entirely from its envelope has at most `eager_bytes` bytes and fewer than `max_departing`
  // messages are in flight, its send ends at once; otherwise, the request joins the wait set when a coroutine awaits
  // the send. MPI normally sends short messages without further calls by the sender; if MPI needs a call, a message
  // whose send has ended is late, but not lost.
  static constexpr std::size_t eager_bytes = 1024; // bytes, below the eager limits of Open MPI and MPICH
  static constexpr std::size_t max_departing = 64;

 public:
  operation<mpi_port, request_owner> send(const message_pieces& out, rank_t peer, tag_t tag) {
    if (cut_ > 0) post_all(peer, tag); // the new message must not overtake segments of earlier messages
    envelope* cover = departing_.acquire();
    const std::size_t bytes = write_envelope(out, cover->bytes.data());
    const bool enclosed = is_enclosed(out.head);
    request_owner* s = nullptr;
    if (!enclosed || bytes > eager_bytes || departing_.count() >= max_departing)
      s = begin(false, peer, tag, enclosed ? nullptr : cover);
    operation<mpi_port, request_owner> sending(*this, s); // before the first request, which it cancels after an error
    requests_.make_room();
    MPI_Request request = MPI_REQUEST_NULL;
    detail::check_mpi(
        MPI_Isend(cover->bytes.data(), static_cast<int>(bytes), MPI_BYTE, peer, tag, comm_.get(), &request),
        "MPI_Isend");
    if (enclosed) { // nothing is sent from the caller's memory: the envelope belongs to this rank
      if (s != nullptr) s->outstanding = 1;
      departing_.add(*cover, request, s);
    } else {
      add(request, s, true);
      s->pieces = out.pieces;
      begin_segments(s);
    }
    return sending;
  }

  operation<mpi_port, request_owner> receive(message_buffer& in, rank_t source, tag_t tag) {
    request_owner* r = begin(true, source, tag, departing_.acquire());
    r->into = &in;
    requests_.make_room();
    MPI_Request request = MPI_REQUEST_NULL;
    detail::check_mpi(MPI_Irecv(r->cover->bytes.data(), static_cast<int>(envelope_bytes), MPI_BYTE, source, tag,
                                comm_.get(), &request),
                      "MPI_Irecv");
    add(request, r, true);
    return operation<mpi_port, request_owner>(*this, r);
  }

  /// Polls MPI once or, if `block` is true, until an operation may have ended, then resumes the coroutines that are
  /// ready. Throws `deadlock` if `block` is true but nothing is in flight for which this rank could wait. On any other
  /// error, a pending call fails, and the communicator dies.
  void progress(bool block) {
    try {
      poll(block);
    } catch (const deadlock&) {
      throw;
    } catch (...) {
      on_progress_error(*this);
    }
    scheduler().run();
  }

  void post(const control_message& note, rank_t peer) {
    departing_.post(note, peer, detail::mpi_control::notes, control_->get());
  }

  void abandon(request_owner* r) {
    if (r->outstanding > 0) cancel(r);
    if (r->outstanding > 0) { // MPI still reads the buffer of a send
      r->cancelled = true;
      return begin_loan();
    }
    recycle(r);
  }

 private:
  /// The number of operations for which this port reserves memory, so that a typical call allocates no memory.
  [[nodiscard]] std::size_t room() const noexcept { return 8 * static_cast<std::size_t>(std::min(size(), 1024)) + 16; }

  request_owner* begin(bool receives, rank_t peer, tag_t tag, envelope* cover) {
    request_owner* r = owners_.acquire();
    r->begin(receives, peer, tag);
    r->outstanding = 0;
    r->piece = max_pieces;
    r->cancelled = false;
    r->opened = false;
    r->cover = cover;
    return r;
  }

  void recycle(request_owner* r) noexcept {
    if (r->cover != nullptr) departing_.recycle(std::exchange(r->cover, nullptr));
    owners_.recycle(r);
  }

  /// Does nothing if a coroutine is ready. Otherwise, polls MPI once or, if `block` is true, until a request has
  /// completed, a coroutine is ready, or the communicator is dead. Also polls only once if the scheduler polls.
  void poll(bool block) {
    if (scheduler().idle()) look_after_leaving(); // at the start of a wait, which hides the cost of the tests
    for (std::uint32_t polls = 1; scheduler().idle(); ++polls) {
      if (block && requests_.empty() && !waits().any() && !waits().any_idle() && !dead() && !scheduler().polls()) {
        raise<deadlock>({"rank ", rank(), " would wait forever, because it has no call or message in flight"});
      }
      const bool news =
          requests_.test([this](const wait_set::slot& completed, const MPI_Status& status) { end(completed, status); });
      // A blocking wait checks for control messages only at every 32nd poll, but a rank without requests checks at
      // every poll, because it may await a control message.
      if (++polls_ % 32 == 0 || !block || requests_.empty()) poll_control();
      if (dead() && loans().any()) reclaim_buffers();
      // `progress(false)`, which a program might call only rarely, checks deadlines at every 4th poll, `progress(true)`
      // at every 1024th. At every poll would be too often: MPI may need several to notice a message that has arrived.
      if (polls_ % 1024 == 0 || (!block && !news && polls_ % 4 == 0)) {
        const double time = now();
        if (spar::poll_waits(*this, time) <= time) break;
      }
      if (news || !block) break;
      if (polls > 128 || scheduler().polls()) sched_yield();
      if (dead() || scheduler().polls()) break; // so that `run` polls, too
    }
  }

  /// Recycles the envelopes of messages that have left, and moves the requests that a coroutine awaits to the wait set.
  void look_after_leaving() {
    departing_.test(
        [this](request_owner* sender) {
          sender->outstanding = 0;
          sender->complete(scheduler());
        },
        [this](request_owner* sender, envelope* cover, MPI_Request request) {
          requests_.make_room();
          sender->outstanding = 0;
          sender->cover = cover;
          add(request, sender, true);
        });
  }

  void add(MPI_Request request, request_owner* owner, bool is_envelope = false) {
    requests_.add(request, owner, is_envelope);
    ++owner->outstanding;
  }

  /// Starts to send or receive the payload of the operation `r` in segments.
  void begin_segments(request_owner* r) {
    r->piece = 0;
    r->at = 0;
    r->posted = 0;
    ++cut_;
    post_segments(r, detail::mpi_segments::window);
  }

  /// Posts segments of the operation `r` until `r` has `most` requests in flight or all segments are posted.
  void post_segments(request_owner* r, std::size_t most) {
    const std::size_t segment = segments_[r->peer];
    while (r->piece < max_pieces) {
      const std::size_t size = r->receives ? r->into->head().lengths[r->piece] : r->pieces[r->piece].size();
      for (; r->at < size; r->at += segment) {
        if (r->outstanding >= most) return;
        requests_.make_room();
        const int count = static_cast<int>(std::min(segment, size - r->at));
        MPI_Request part = MPI_REQUEST_NULL;
        ++r->posted;
        if (r->receives) {
          detail::check_mpi(MPI_Irecv(r->into->destination(r->piece).data() + r->at, count, MPI_BYTE, r->peer, r->tag,
                                      comm_.get(), &part),
                            "MPI_Irecv");
        } else {
          const auto start = r->posted % detail::mpi_segments::confirmed == 0 ? &MPI_Issend : &MPI_Isend;
          detail::check_mpi(
              start(r->pieces[r->piece].data() + r->at, count, MPI_BYTE, r->peer, r->tag, comm_.get(), &part),
              "MPI_Isend");
        }
        add(part, r);
      }
      ++r->piece;
      r->at = 0;
    }
    --cut_;
  }

  /// Posts the remaining segments of earlier sends to `peer` under `tag`, which a new message must not overtake.
  void post_all(rank_t peer, tag_t tag) {
    for (std::size_t i = 0; i < requests_.size(); ++i) { // an operation with segments to post owns a request
      request_owner* s = requests_[i].owner;
      if (!s->receives && s->piece < max_pieces && s->peer == peer && s->tag == tag) {
        post_segments(s, std::numeric_limits<std::size_t>::max());
      }
    }
  }

  /// Handles the control messages that have arrived. Most polls of a blocking wait skip this step, to save MPI calls.
  void poll_control() {
    for (control_message note; control_->take(note);) spar::on_control_message(*this, note);
    control_->take_lost([this](rank_t r) { detail::abort(*this, "its process has ended", r); });
  }

  void end(const wait_set::slot& completed, const MPI_Status& status) {
    request_owner* r = completed.owner;
    --r->outstanding;
    if (r->cancelled && r->outstanding == 0) {
      end_loan();
      recycle(r);
    } else if (r->cancelled || r->done) { // the operation has failed already
      return;
    } else {
      complete_part(r, completed.is_envelope, status);
    }
  }
  void complete_part(request_owner* r, bool is_envelope, const MPI_Status& status) {
    try {
      if (detail::tells_of_lost_process(status.MPI_ERROR)) {
        poll_control(); // learns who is lost
        if (dead()) failure().raise_peer_failed();
      }
      detail::check_mpi(status.MPI_ERROR, "the transfer of an MPI message");
      if (r->receives && is_envelope) open(r, status);
      if (r->piece < max_pieces) post_segments(r, detail::mpi_segments::window);
      if (r->outstanding == 0 && (r->opened || !r->receives)) r->complete(scheduler());
    } catch (...) {
      cancel(r);
      r->fail(scheduler(), std::current_exception());
    }
  }

  /// Reads the envelope that has arrived for the receive `r`, then takes its payload or starts to receive the segments.
  void open(request_owner* r, const MPI_Status& status) {
    r->opened = true;
    int arrived = 0;
    MPI_Get_count(&status, MPI_BYTE, &arrived);
    const std::span<const std::byte> bytes(r->cover->bytes.data(), static_cast<std::size_t>(std::max(arrived, 0)));
    const payload_views pieces = read_envelope(bytes, r->into->arrived());
    if (!r->into->fits()) {
      cancel(r); // this rank expects pieces of other sizes: the call ends in `mismatch`
    } else if (!is_enclosed(r->into->head())) {
      poll_control(); // to notice if the sender has failed, because its segments may then never arrive
      if (!dead()) return begin_segments(r);
      cancel(r);
      r->opened = false; // otherwise the receive would count as complete
    } else if (r->into->placed()) {
      r->into->copy_from(pieces);
    } else {
      r->into->borrow(pieces, &departures::give_back, std::exchange(r->cover, nullptr));
    }
  }

  /// Ends the requests of the incomplete operation `r`, except those of a send from the caller's buffer that MPI has
  /// not completed. Cancels receives, and waits for those that MPI cannot cancel, at most until `patience()`; MPI may
  /// then still write to the buffer of a request that has not completed.
  void cancel(request_owner* r) noexcept {
    r->outstanding -= departing_.forget(r);
    // Cancels the last receive first: otherwise a segment in flight could match a later receive of the same operation.
    for (std::size_t i = requests_.size(); i-- > 0;) {
      if (requests_[i].owner != r) continue;
      MPI_Request& request = requests_.request(i);
      if (r->receives) {
        MPI_Cancel(&request); // no effect if a part of the message has arrived; the rest may never come
        if (!ends(request)) r->cover = nullptr, lost_ = true;
      } else if (requests_[i].is_envelope) {
        departing_.add(*std::exchange(r->cover, nullptr), request, nullptr);
      } else {
        int sent = 0;
        MPI_Test(&request, &sent, MPI_STATUS_IGNORE);
        if (sent == 0) continue;
      }
      requests_.release(i);
      --r->outstanding;
    }
    requests_.remove(nullptr);
    if (r->piece < max_pieces) --cut_;
    r->piece = max_pieces;
  }

  /// On a dead communicator, discards messages for this rank. All ranks that learn of the failure do so, so that the
  /// sends of all ranks complete. At the time `patience()`, gives up the sends of failed calls, and tells the peers:
  /// MPI may then still read their buffers.
  void reclaim_buffers() noexcept {
    drain();
    sched_yield();
    if (now() < patience()) return;
    control_->end_with(control_message::purpose::gone, "");
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      request_owner* const r = requests_[i].owner;
      if (r == nullptr || !r->cancelled) continue;
      requests_.release(i);
      if (--r->outstanding > 0) continue;
      end_loan();
      recycle(r);
    }
    requests_.remove(nullptr);
  }

  /// Tests `request` until the request completes, or until this rank gives up its messages at the time `patience()`.
  /// Returns whether the request has completed.
  bool ends(MPI_Request& request) noexcept {
    int ended = 0;
    do {
      MPI_Test(&request, &ended, MPI_STATUS_IGNORE);
    } while (ended == 0 && now() < patience());
    return ended != 0;
  }

  /// The time at which this rank gives up its messages: one second after the first call of `patience`.
  double patience() noexcept {
    if (given_up_ == 0) given_up_ = now() + 1;
    return given_up_;
  }

  void try_poll_control() noexcept {
    try {
      poll_control();
    } catch (...) { // ignores a damaged control message, because the callers cannot throw
    }
  }

  /// Receives and discards the messages that peers have sent for failed calls, so that the peers' sends complete. Skips
  /// peers that have given up their messages, because the memory of these messages may already be freed. Stops when
  /// this rank gives up its own messages.
  void drain() noexcept {
    try_poll_control();
    for (rank_t peer = 0; peer < size(); ++peer) {
      for (int there = 1; there != 0 && !control_->is_gone(peer) && now() < patience();) {
        MPI_Status status;
        there = 0;
        MPI_Iprobe(peer, MPI_ANY_TAG, comm_.get(), &there, &status);
        if (there == 0) break;
        int bytes = 0;
        MPI_Get_count(&status, MPI_BYTE, &bytes);
        void* const nowhere = ::operator new(static_cast<std::size_t>(bytes), std::nothrow);
        if (nowhere == nullptr) return;
        MPI_Request request = MPI_REQUEST_NULL;
        MPI_Irecv(nowhere, bytes, MPI_BYTE, peer, status.MPI_TAG, comm_.get(), &request);
        if (!ends(request)) return; // does not free memory to which MPI may still write
        ::operator delete(nowhere);
        if (bytes == 0) control_->note_flush(peer);
      }
    }
  }

  detail::owned_communicator comm_;
  detail::mpi_control_owner control_;
  std::uint32_t polls_ = 0;
  bool lost_ = false;   // whether a receive is still in flight because MPI could not cancel it
  double given_up_ = 0; // the result of `patience`; 0 before its first call
  mpi_options options_;
  detail::mpi_segments segments_;
  detail::slab<request_owner> owners_;
  departures departing_; // the messages in flight that are sent from memory of this port
  wait_set requests_;
  std::size_t cut_ = 0; // number of operations with segments still to be posted
};

} // namespace spar::inline v0_1
