// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The transport of a rank over UCX: each message is an active message.
#pragma once

#include <spar/core/memory/record_queue.hpp>
#include <spar/core/memory/slab.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/core/util/thread.hpp>
#include <spar/runtime/abort.hpp>
#include <spar/runtime/endpoint.hpp>
#include <spar/runtime/matching.hpp>
#include <spar/runtime/operation.hpp>
#include <spar/runtime/progress.hpp>
#include <spar/runtime/transport_concept.hpp>
#include <spar/transport/ucx/connections.hpp>
#include <spar/transport/ucx/founders.hpp>
#include <spar/transport/ucx/frame.hpp>
#include <spar/transport/ucx/inbox.hpp>
#include <spar/transport/ucx/settings.hpp>

#include <ucp/api/ucp.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sched.h>

namespace spar::inline v0_1 {

/// The transport of one rank over UCX. UCX copies a short payload on its way, and brings a long one from the memory of
/// the sender to its place at the receiver, whichever way is fastest; also from device memory to device memory, if UCX
/// takes these. An endpoint opens at the first message to a rank. A rank that waits polls for some microseconds, then
/// sleeps until UCX has an event.
class ucx_port : public endpoint {
 public:
  /// All memory is taken before a rank can send to this one.
  ucx_port(detail::ucx_founders&& all, const ucx_options& options, const network_model& network)
      : endpoint(all.meeting.rank(), all.meeting.size(), pool_owner(*options.memory)), meeting_(all.meeting),
        options_(options), hosts_(detail::hosts_of(all.members)), transfers_(room()),
        connections_(rank(), all.members, hosts_, std::move(all.worker)),
        inbox_(size(), room(), connections_.worker()) {
    set_network(network);
    const auto on_host = std::count(hosts_.begin(), hosts_.end(), hosts_[static_cast<std::size_t>(rank())]);
    polls_before_sleep_ = on_host <= detail::processors();
    takes_device_memory_ = options.device_memory && (on_host == size() || !detail::ucx_copies_between_hosts()) &&
                           connections_.worker().takes_device_memory();
    set_unreceived(matching_.arrivals(), [](endpoint& own, bool look) {
      auto& port = static_cast<ucx_port&>(own);
      if (look) port.try_look();
      return port.matching_.oldest_arrival();
    });
    leavers().set_late(0); // that a rank has left arrives behind its other messages
    connections_.worker().on_message(&on_message, this);
  }

  /// Waits for the last messages of this rank to leave, and tells the other ranks that this rank has left, without
  /// waiting for them. If the communicator is dead, also discards incoming messages until all ranks have announced that
  /// their messages have left or have been given up. Gives up after one second.
  ~ucx_port() {
    using purpose = control_message::purpose;
    if (std::exchange(aborts_leave_until_, 0) > 0) end_loan(); // the destructor waits for them, too
    const double end = patience();
    const detail::calls_of_leaver calls = calls_so_far();
    bool notified = false;
    drain();
    connections_.look_at_processes();
    for (; !connections_.is_silent(); nap()) {
      if (dead()) inbox_.discard_all(matching_.arrivals());
      if (!notified && in_flight() == 0) {
        notified = true;
        tell_all(purpose::left, dead() ? std::string_view() : calls.text());
      }
      connections_.close(true);
      if (now() >= end || (notified && in_flight() == 0 && (!dead() || all_have_ended()))) break;
    }
    if (!notified) tell_all(purpose::gone, "");
    const bool has_left = connections_.flush(end);
    close_connections();
    const bool is_done = has_left && in_flight() == 0 && given_up_transfers_ == 0;
    connections_.silence();
    inbox_.discard_all(matching_.arrivals());
    inbox_.discard_all(to_handle_);
    inbox_.discard_early();
    if (!is_done) connections_.keep_forever(); // UCX does not expect that a worker is destroyed with messages in flight
  }

  void share() const noexcept {}
  /// Without RDMA, UCX would copy device memory to the host by itself: see `ucx_copies_between_hosts`. For payloads of
  /// several pieces, see `ucx_payload`.
  [[nodiscard]] device_path path_on_device(std::size_t bytes, std::size_t pieces) const noexcept {
    return takes_device_memory_ && bytes > enclosed_bytes && pieces == 1 ? device_path::direct : device_path::staged;
  }
  [[nodiscard]] endpoint& node() noexcept { return *this; }
  [[nodiscard]] const endpoint& node() const noexcept { return *this; }
  void compute(std::uint64_t) const noexcept {}
  [[nodiscard]] const ucx_options& options() const noexcept { return options_; }
  /// Of each rank: the lowest rank on the same host.
  [[nodiscard]] const std::vector<rank_t>& hosts() const noexcept { return hosts_; }
  /// Where the ranks of this communicator have met.
  [[nodiscard]] const rendezvous& meeting() const noexcept { return meeting_; }

 private:
  /// A send or receive in flight.
  struct transfer : operation_record {
    transfer* next = nullptr;
    ucx_port* owner = nullptr;
    message_buffer* into = nullptr; // receives only: the destination
    bool is_busy = false;           // whether UCX uses the memory of the message
    bool cancelled = false;         // whether the operation has failed while UCX uses its memory
    bool given_up = false;          // whether this rank no longer waits until UCX does not use its memory any more
    std::array<ucp_dt_iov_t, max_pieces> places{}; // the pieces that are not empty, for UCX
    detail::ucx_frame::room head;                  // sends only
    detail::ucx_arrival* on_host = nullptr; // receives in device memory: the payload, if it comes by way of the host
  };

  using arrival = detail::ucx_arrival;
  using outcome = detail::ucx_outcome;

 public:
  operation<ucx_port, transfer> send(const message_pieces& out, rank_t to, tag_t tag) {
    transfer* const t = begin(false, to, tag);
    operation<ucx_port, transfer> sending(*this, t); // before UCX is called: cancels `t` after an error
    std::size_t pieces = 0;
    for (const auto& piece : out.pieces) {
      if (!piece.empty()) t->places[pieces++] = {const_cast<std::byte*>(piece.data()), piece.size()};
    }
    const auto head = connections_.next_frame(to, tag).write(out.head, t->head);
    const detail::ucx_payload what{{t->places.data(), pieces}, out.stream != nullptr};
    const outcome how = connections_.send(to, head, what, t, &on_sent);
    t->is_busy = how == outcome::in_flight;
    in_flight_ += t->is_busy ? 1 : 0;
    if (how == outcome::ended) recycle(sending.release());
    return sending;
  }

  operation<ucx_port, transfer> receive(message_buffer& in, rank_t source, tag_t tag) {
    transfer* const t = begin(true, source, tag);
    t->into = &in;
    operation<ucx_port, transfer> receiving(*this, t);
    if (arrival* const a = matching_.post(t)) {
      if (a->is_rendezvous) connections_.poll(); // the sender may have failed, and its memory not be there any more
      if (!dead() && deliver(*a, t))
        inbox_.recycle(a); // UCX has taken over the payload
      else
        inbox_.discard(a);
    }
    return receiving;
  }

  /// Polls UCX once or, if `block` is true, until an operation may have ended, then resumes the coroutines that are
  /// ready. Throws `deadlock` if `block` is true but nothing is in flight for which this rank could wait.
  void progress(bool block) {
    try {
      bool news = look();
      if (block && !news && polls_before_sleep_ && !dead()) news = look_for_a_while();
      if (block && !news && scheduler().idle() && (!dead() || loans().any() || scheduler().polls()))
        doze();
      else if (!block || ++polls_ % 256 == 0)
        look_at_clock();
      if (dead()) end_messages();
    } catch (const deadlock&) {
      throw;
    } catch (...) {
      on_progress_error(*this);
    }
    scheduler().run();
    if (sleeps_elsewhere_ && !connections_.arm()) connections_.wake(); // this thread has taken its events
  }

  /// Called by a progress_thread, which does not hold the lock of the rank. Returns true.
  bool sleep_until(double time) {
    {
      const detail::rank_lock lock(shared());
      if (!connections_.arm()) return true;
      sleeps_elsewhere_ = true;
    }
    const bool has_ended = connections_.wait(time - now());
    const detail::rank_lock lock(shared());
    sleeps_elsewhere_ = false;
    if (has_ended) connections_.look_at_processes();
    return true;
  }
  void wake() noexcept { connections_.wake(); }

  [[gnu::cold]] void post(const control_message& note, rank_t to) {
    // If operations are awaited, `poll_waits` may be going through their list, so none may end here.
    connections_.post(note, to, !waits().any());
    if (connections_.aborts_in_flight() == 0 || aborts_leave_until_ > 0) return;
    aborts_leave_until_ = now() + 0.2; // a rank that makes progress answers sooner
    begin_loan();
    set_aborting(true);
  }

  void abandon(transfer* t) noexcept {
    if (t->is_busy) { // UCX still reads or writes the payload
      t->cancelled = true;
      loaned_.push_back(t);
      return begin_loan();
    }
    if (t->receives && !t->done) matching_.withdraw(t);
    recycle(t);
  }

  /// What this rank needs for a communicator of the ranks with the same `colour`, by `key`. Collective; the calls in
  /// flight go on. Throws `peer_failed` if a rank fails or has left, and `timeout` if a rank is missing at the
  /// deadline; the communicator is dead after any error.
  detail::ucx_founders split(int colour, int key) {
    const double begin = now();
    double missed = 0; // when this rank first knew that another has left
    auto meanwhile = [&] {
      progress(false);
      if (dead()) failure().raise_peer_failed();
      rank_t leaver = 0;
      while (leaver < size() && leavers().find(leaver) == nullptr) ++leaver;
      if (missed == 0 && leaver < size()) missed = now();
      if (missed > 0 && now() - missed > 1) // what the rank has notified before has arrived by now
        raise<peer_failed>({"rank ", leaver, " has left, but rank ", rank(), " waits for all ranks to call split"});
      if (now() - begin > deadline())
        raise<timeout>({"rank ", rank(), " has waited for ", deadline(), " s for all other ranks to call split"});
    };
    try {
      meanwhile(); // ranks that have given up have aborted
      return detail::ucx_founders::split(meeting_, connections_.worker(), colour, key, meanwhile);
    } catch (...) {
      abort_and_rethrow(*this);
    }
  }

  /// What this rank needs for a communicator of the ranks that go on after a failure. The communicator is dead.
  detail::ucx_founders shrink(detail::patience& with) {
    return detail::ucx_founders::shrink(meeting_, connections_.worker(), with);
  }
  /// Another worker of this process, for a communicator of more ranks.
  [[nodiscard]] detail::ucx_worker another_worker() const {
    return detail::ucx_worker(connections_.worker().context());
  }
  /// See `ucx_connections::has_left`.
  [[nodiscard]] bool has_left(rank_t r) const noexcept { return connections_.has_left(r); }

 private:
  /// Number of messages whose memory UCX uses.
  [[nodiscard]] std::size_t in_flight() const noexcept { return in_flight_ + connections_.notes_in_flight(); }
  /// The number of operations for which this port reserves memory, so that a typical call allocates no memory.
  [[nodiscard]] std::size_t room() const noexcept { return 8 * static_cast<std::size_t>(std::min(size(), 1024)) + 16; }

  transfer* begin(bool receives, rank_t other, tag_t tag) {
    transfer* const t = transfers_.acquire();
    t->begin(receives, other, tag);
    t->owner = this;
    t->is_busy = t->cancelled = t->given_up = false;
    return t;
  }
  void recycle(transfer* t) noexcept {
    if (t->on_host != nullptr) inbox_.discard(std::exchange(t->on_host, nullptr));
    transfers_.recycle(t);
  }

  // --- what UCX has ended ---

  static void on_sent(void* request, ucs_status_t status, void* record) noexcept { end(request, status, record); }
  static void on_received(void* request, ucs_status_t status, std::size_t, void* record) noexcept {
    end(request, status, record);
  }
  /// Called by UCX when it does not use the memory of a message any more.
  static void end(void* request, ucs_status_t status, void* record) noexcept {
    auto* const t = static_cast<transfer*>(record);
    ucx_port& port = *t->owner;
    if (request != nullptr) ucp_request_free(request);
    if (port.connections_.is_silent()) return;
    if (t->given_up) {
      --port.given_up_transfers_;
      return port.recycle(t);
    }
    --port.in_flight_;
    t->is_busy = false;
    if (t->cancelled) {
      port.loaned_.take([t](const transfer& one) { return &one == t; });
      port.end_loan();
      port.recycle(t);
    } else if (status == UCS_OK || (status == UCS_ERR_CANCELED && !t->receives)) { // the peer may discard a message
      port.complete(t);
    } else {
      port.connections_.suspect(t->peer, ucs_status_string(status));
    }
  }

  void complete(transfer* t) noexcept {
    if (t->on_host != nullptr) inbox_.lend(*std::exchange(t->on_host, nullptr), *t->into);
    t->complete(scheduler());
  }

  // --- receiving ---

  /// Called by UCX when a message has arrived. Returns UCS_INPROGRESS if UCX has to keep `payload`.
  static ucs_status_t on_message(void* self, const void* head, std::size_t head_bytes, void* payload,
                                 std::size_t payload_bytes, const ucp_am_recv_param_t* how) noexcept {
    auto& port = *static_cast<ucx_port*>(self);
    if (port.connections_.is_silent()) return UCS_OK;
    try {
      detail::ucx_incoming m({static_cast<const std::byte*>(head), head_bytes}, payload_bytes, port.size());
      m.payload = static_cast<std::byte*>(payload);
      m.is_rendezvous = payload_bytes > 0 && (how->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
      m.may_stay = payload_bytes > 0 && (m.is_rendezvous || (how->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) != 0);
      if (m.tag == detail::ucx_frame::hello) {
        port.connections_.greet(m.source);
        return UCS_OK;
      }
      return port.arrive(m) ? UCS_INPROGRESS : UCS_OK;
    } catch (...) {
      if (!port.error_) port.error_ = std::current_exception();
      return UCS_OK;
    }
  }

  /// Accepts `m` and the messages that have waited for it or, if it is too early, lets it wait. Returns whether UCX has
  /// to keep its payload.
  bool arrive(detail::ucx_incoming& m) {
    if (!inbox_.take_turn(m)) return inbox_.keep_early(m);
    const bool stays = accept(m);
    while (arrival* const a = inbox_.take_next(m.source)) accept_early(a);
    return stays;
  }

  /// Accepts the message `m`, whose turn it is. Returns whether UCX has to keep its payload.
  bool accept(detail::ucx_incoming& m) {
    if (m.tag == detail::ucx_frame::control) return !handle_at_once(m.note) && inbox_.keep(m, to_handle_);
    if (dead()) return false;
    if (transfer* const t = matching_.take_receive(m.source, m.tag)) return deliver(m, t);
    return inbox_.keep(m, matching_.arrivals());
  }
  void accept_early(arrival* a) {
    if (a->tag == detail::ucx_frame::control) {
      if (!handle_at_once(a->note)) return to_handle_.push_back(a);
    } else if (!dead()) {
      transfer* const t = matching_.arrive(a);
      if (t == nullptr) return;
      if (deliver(*a, t)) return inbox_.recycle(a);
    }
    inbox_.discard(a);
  }

  /// Gives the message `m` to the receive `t`. Returns whether UCX has taken over the payload, and brings it to its
  /// place, or keeps it for the receive; otherwise, it is not needed any more.
  bool deliver(const detail::ucx_incoming& m, transfer* t) {
    bool stays = false;
    try {
      message_buffer& to = *t->into;
      to.arrived() = m.head;
      if (to.fits() && m.is_rendezvous) return fetch(m, t);
      if (to.fits() && to.on_device()) {
        stays = inbox_.lend(m, to);
      } else if (to.fits()) {
        const std::byte* from = m.payload;
        for (std::size_t i = 0; i < max_pieces; ++i) {
          const std::size_t bytes = m.head.lengths[i];
          if (bytes == 0) continue;
          std::memcpy(to.destination(i).data(), from, bytes);
          from += bytes;
        }
      }
      t->complete(scheduler());
    } catch (...) {
      t->fail(scheduler(), std::current_exception());
    }
    return stays;
  }
  /// Makes UCX bring the payload of `m` to its place. Returns true.
  bool fetch(const detail::ucx_incoming& m, transfer* t) {
    message_buffer& to = *t->into;
    const auto& lengths = m.head.lengths;
    const bool is_one_piece = std::count(lengths.begin(), lengths.end(), 0) == max_pieces - 1;
    std::size_t pieces = 0;
    if (to.on_device() && !is_one_piece) { // see `ucx_payload`
      t->on_host = inbox_.make_room(m);
      t->places[pieces++] = {t->on_host->payload, m.payload_bytes};
    } else {
      for (std::size_t i = 0; i < max_pieces; ++i) {
        if (lengths[i] > 0) t->places[pieces++] = {to.destination(i).data(), lengths[i]};
      }
    }
    const detail::ucx_payload place{{t->places.data(), pieces}, to.on_device() && is_one_piece};
    t->is_busy = true;
    ++in_flight_;
    void* const request = connections_.worker().fetch(m.payload, place, &on_received, t);
    if (UCS_PTR_IS_PTR(request)) return true; // UCX calls `on_received`, or has called it already
    --in_flight_;
    t->is_busy = false;
    if (request == nullptr)
      complete(t);
    else
      connections_.suspect(t->peer, ucs_status_string(UCS_PTR_STATUS(request)));
    return true;
  }

  /// Handles a control message at once, if that sends nothing and takes no memory. Returns false otherwise.
  [[gnu::cold]] bool handle_at_once(const control_message& note) {
    using purpose = control_message::purpose;
    const bool is_last = note.what == purpose::gone || note.what == purpose::left;
    if (is_last && note.last != 0) // a rank that leaves a dead communicator says `left` without a text, and waits
      connections_.set_ended(note.source, note.what == purpose::left, note.what == purpose::gone || note.length > 0);
    if (note.what == purpose::abort) spar::on_control_message(*this, note);
    return note.what == purpose::abort || note.what == purpose::gone;
  }

  // --- progress ---

  /// Polls UCX once, and handles the control messages that have arrived. Returns whether anything has happened.
  bool look() {
    const bool news = connections_.poll();
    while (arrival* const a = to_handle_.pop_front()) {
      const control_message note = a->note;
      inbox_.discard(a);
      try {
        spar::on_control_message(*this, note);
      } catch (...) {
        on_progress_error(*this);
      }
    }
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    return news;
  }
  /// Polls UCX until anything happens, for longer than a peer takes to wake up and answer, some 12 µs: if both ranks
  /// slept meanwhile, each message between them would have to wake its receiver. Returns whether anything has happened.
  bool look_for_a_while() {
    constexpr double seconds = 2e-5;
    for (double end = 0;;) {
      for (int i = 0; i < 64; ++i) {
        if (look() || !scheduler().idle() || dead()) return true;
      }
      const double time = now();
      if (end == 0) end = time + seconds;
      if (time >= end) return false;
    }
  }
  /// Handles all messages that have arrived, as far as UCX knows.
  void drain() noexcept {
    constexpr double while_silent = 2e-4; // seconds in which UCX notices messages over a way that it has not used yet
    for (double end = now() + while_silent; now() < end;) {
      if (try_look()) end = now() + while_silent;
    }
  }
  bool try_look() noexcept {
    try {
      return look();
    } catch (...) {
      on_progress_error(*this);
      return true;
    }
  }

  /// Checks deadlines, and which ranks have died. Returns the time of the next check.
  double look_at_clock() {
    const double time = now();
    const double until = spar::poll_waits(*this, time);
    const double next =
        connections_.confirm_deaths(time, [this](rank_t r, const char* why) { detail::abort(*this, why, r); });
    return std::min(until, next);
  }

  /// Sleeps until an operation may have ended.
  void doze() {
    const double until = look_at_clock();
    if (in_flight() == 0 && matching_.receives().empty() && !waits().any() && !waits().any_idle() && !dead() &&
        !scheduler().polls()) {
      raise<deadlock>({"rank ", rank(), " would wait forever, because it has no call or message in flight"});
    }
    if (scheduler().polls())
      sched_yield(); // nothing would end the sleep
    else if (dead())
      nap();
    else if (scheduler().idle() && connections_.arm() && connections_.wait(until - now()))
      connections_.look_at_processes();
    look();
  }
  /// On a dead communicator, or one that this rank leaves: looks for messages, and waits for more for a moment.
  void nap() noexcept {
    detail::rest(20e-6);
    try_look();
  }

  // --- the end ---

  /// The time at which this rank gives up its messages: one second after the first call of `patience`.
  double patience() noexcept {
    if (given_up_ == 0) given_up_ = now() + 1;
    return given_up_;
  }
  /// On a dead communicator: discards the messages for this rank, so that the sends of their sources end, and gives up
  /// those from and to processes that have ended. A failed call returns when its aborts have left, for which UCX needs
  /// progress of this rank where it opens a connection. At the time `patience()`, gives up all messages of failed
  /// calls: closes their connections, and never looks for messages again, for UCX would write to memory that is not
  /// there any more.
  void end_messages() noexcept {
    inbox_.discard_all(matching_.arrivals());
    if (aborts_leave_until_ > 0 && (connections_.aborts_in_flight() == 0 || now() >= aborts_leave_until_)) {
      aborts_leave_until_ = 0;
      end_loan();
      set_aborting(false);
    }
    while (transfer* const t = loaned_.take([this](const transfer& one) { return connections_.has_died(one.peer); }))
      give_up(t);
    if (loaned_.empty() || now() < patience()) return;
    tell_all(control_message::purpose::gone, "");
    for (int i = 0; i < 100; ++i) connections_.poll();
    close_connections();
    connections_.silence();
    while (transfer* const t = loaned_.pop_front()) give_up(t);
  }
  /// Closes the connections that UCX watches, and ends the messages over them.
  void close_connections() noexcept {
    connections_.close(false);
    for (int i = 0; i < 100 && in_flight() > 0; ++i) connections_.poll();
  }
  void give_up(transfer* t) noexcept {
    t->given_up = true;
    ++given_up_transfers_;
    --in_flight_;
    end_loan();
  }
  /// Sends `word` with `text` to all other ranks as the last control message of this rank.
  void tell_all(control_message::purpose word, std::string_view text) noexcept {
    try {
      detail::broadcast_text(*this, word, text);
    } catch (...) { // a rank without memory is silent
    }
  }
  [[nodiscard]] bool all_have_ended() const noexcept {
    for (rank_t r = 0; r < size(); ++r) {
      if (r != rank() && !connections_.has_ended(r)) return false;
    }
    return true;
  }

  rendezvous meeting_;
  ucx_options options_;
  std::vector<rank_t> hosts_;
  bool polls_before_sleep_ = false;  // false if this host has fewer processors than ranks
  bool takes_device_memory_ = false; // whether UCX is given payloads in device memory
  std::uint32_t polls_ = 0;
  double aborts_leave_until_ = 0; // until when a failed call waits for its aborts to leave; 0 if none is in flight
  double given_up_ = 0;           // the result of `patience`; 0 before its first call
  bool sleeps_elsewhere_ = false; // whether a progress_thread sleeps
  std::size_t in_flight_ = 0;     // sends and receives whose memory UCX uses
  std::size_t given_up_transfers_ = 0;
  std::exception_ptr error_; // of a message that has arrived
  detail::slab<transfer> transfers_;
  matching<arrival, transfer> matching_;
  detail::record_queue<transfer> loaned_;   // the cancelled ones whose memory UCX uses
  detail::record_queue<arrival> to_handle_; // control messages
  detail::ucx_connections connections_;     // destroyed before what UCX may use
  detail::ucx_inbox inbox_;
};

static_assert(sleeping_transport<ucx_port> && device_transport<ucx_port>);

} // namespace spar::inline v0_1
