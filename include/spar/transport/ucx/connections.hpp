// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The other ranks as a rank over UCX reaches them: their endpoints, the control messages to them, and whether they have
// left or died.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/error.hpp>
#include <spar/core/memory/fixed_vector.hpp>
#include <spar/core/memory/record_queue.hpp>
#include <spar/core/memory/slab.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/core/util/thread.hpp>
#include <spar/runtime/endpoint.hpp>
#include <spar/runtime/messages/control_message.hpp>
#include <spar/transport/ucx/deaths.hpp>
#include <spar/transport/ucx/descriptors.hpp>
#include <spar/transport/ucx/frame.hpp>
#include <spar/transport/ucx/member.hpp>
#include <spar/transport/ucx/settings.hpp>
#include <spar/transport/ucx/worker.hpp>

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace spar::inline v0_1::detail {

/// What became of an active message when it was sent: its memory is free again, UCX uses its memory, or the connection
/// has failed.
enum class ucx_outcome { ended, in_flight, lost };

/// Owns the worker of a rank, its endpoints to all ranks, and the descriptors on which the rank sleeps. An endpoint
/// opens at the first message to its rank.
class ucx_connections {
 public:
  /// Of the rank `own` of a communicator with these `members`, by rank, of which `hosts` has the lowest rank on the
  /// same host.
  ucx_connections(rank_t own, std::vector<ucx_member>& members, const std::vector<rank_t>& hosts, ucx_worker&& worker)
      : own_(own), notes_(8 * std::min<std::size_t>(members.size(), 1024)),
        aborts_(members.size() * control_message::most_parts), deaths_(static_cast<rank_t>(members.size())),
        peers_(*std::pmr::new_delete_resource(), members.size()), worker_(std::move(worker)),
        descriptors_(worker_.descriptor()) {
    opening_.reserve(members.size());
    aborts_.reserve(); // reserved memory takes no pages until it is used
    const bool shares_memory = ucx_shares_memory();
    for (rank_t r = 0; r < static_cast<rank_t>(members.size()); ++r) {
      ucx_member& its = members[static_cast<std::size_t>(r)];
      const bool is_local = hosts[static_cast<std::size_t>(r)] == hosts[static_cast<std::size_t>(own)];
      peers_.emplace_back(*this, r, std::move(its.address), is_local, !is_local || !shares_memory);
      if (is_local && r != own && !descriptors_.watch(r, its.process)) set_died(r);
    }
  }

  [[nodiscard]] const ucx_worker& worker() const noexcept { return worker_; }
  /// Lets UCX make progress. Returns whether UCX has done anything.
  bool poll() noexcept {
    if (is_silent_) return false;
    const bool news = ucp_worker_progress(worker_.get()) != 0;
    return (!opening_.empty() && open_all()) || news;
  }
  /// From now on, UCX makes no progress any more, and calls nothing of this rank that uses memory.
  void silence() noexcept { is_silent_ = true; }
  [[nodiscard]] bool is_silent() const noexcept { return is_silent_; }
  /// See `ucx_worker::keep_forever`.
  void keep_forever() noexcept { worker_.keep_forever(); }

  /// What precedes the next message to `to`.
  [[nodiscard]] ucx_frame next_frame(rank_t to, tag_t tag) const noexcept { return {peer_of(to).sent, own_, tag}; }
  /// Sends an active message with the header `head`, which begins with `next_frame`, and the payload `what` to the rank
  /// `to`. If the outcome is `in_flight`, `ended(request, status, record)` is called later; `request` may be null.
  /// Other operations end meanwhile only if `may_look`.
  ucx_outcome send(rank_t to, std::span<const std::byte> head, const ucx_payload& what, void* record,
                   ucp_send_nbx_callback_t ended, bool may_look = true) {
    peer& its = peer_of(to);
    if (its.endpoint == nullptr) connect(its, may_look);
    if (is_silent_ || is_lost(its)) return ucx_outcome::lost;
    if (!is_open(its)) {
      waiting* const w = waiting_.acquire();
      w->head = head;
      w->what = what;
      w->ended = ended;
      w->record = record;
      its.unsent.push_back(w);
      ++its.sent;
      return ucx_outcome::in_flight;
    }
    void* const request = worker_.send(its.endpoint, head, what, ended, record, flags_to(its, what));
    if (UCS_PTR_IS_ERR(request)) {
      const ucs_status_t status = UCS_PTR_STATUS(request);
      if (status == UCS_ERR_NO_MEMORY) throw std::bad_alloc();
      suspect(to, ucs_status_string(status));
      return ucx_outcome::lost;
    }
    ++its.sent;
    return request == nullptr ? ucx_outcome::ended : ucx_outcome::in_flight;
  }
  /// Sends the control message `note` to `to`, unless this rank cannot reach `to`. Other operations end meanwhile only
  /// if `may_look`.
  [[gnu::cold]] void post(const control_message& note, rank_t to, bool may_look) {
    if (peer_of(to).is_gone) return;
    const bool is_abort = note.what == control_message::purpose::abort;
    departure* const d = is_abort ? aborts_.acquire() : notes_.acquire();
    d->owner = this;
    d->is_abort = is_abort;
    ucx_outcome how = ucx_outcome::lost;
    try {
      how = send(to, next_frame(to, ucx_frame::control).write(note, d->bytes), {}, d, &on_note_sent, may_look);
    } catch (const transport_error&) { // so that no call waits for the peer until the deadline
      suspect(to, "it cannot be reached");
    } catch (...) { // no memory
    }
    if (how != ucx_outcome::in_flight) return recycle(d);
    ++notes_in_flight_;
    aborts_in_flight_ += is_abort ? 1 : 0;
  }
  /// Number of control messages whose memory UCX uses.
  [[nodiscard]] std::size_t notes_in_flight() const noexcept { return notes_in_flight_; }
  /// How many of them are aborts.
  [[nodiscard]] std::size_t aborts_in_flight() const noexcept { return aborts_in_flight_; }
  /// Waits until all messages have left to ranks that wait for them, at most until the time `end`. Returns false if
  /// some have not, and `close` does not end them.
  bool flush(double end) noexcept {
    bool all = true;
    for (const peer& each : peers_) {
      if (is_silent_ || each.endpoint == nullptr || each.has_died || suspects(each.rank)) continue;
      const auto goes_on = [&] { return endpoint::now() < end && !(each.is_watched && each.is_gone); };
      all = (worker_.flush(each.endpoint, goes_on) || each.is_watched) && all;
    }
    return all;
  }
  /// Closes the connections that UCX watches, with `only_gone` only those to ranks that take no message any more. The
  /// messages over them that are in flight end at the next calls of `poll`.
  void close(bool only_gone) noexcept {
    for (peer& each : peers_) {
      if (each.endpoint == nullptr || !each.is_watched || (only_gone && !each.is_gone)) continue;
      worker_.close(std::exchange(each.endpoint, nullptr));
      each.is_closed = true;
      start_opening(each); // which ends the messages that wait
    }
  }
  /// A `hello` has arrived from `r`.
  void greet(rank_t r) {
    peer& its = peer_of(r);
    its.hellos_received = std::min(its.hellos_received + 1, 2);
    start_opening(its);
  }

  // --- who has left or died ---

  /// The last control message of `r` has arrived: `r` has left or, if not `has_left`, only given up its messages. With
  /// `is_gone`, it waits for no last message of this rank.
  void set_ended(rank_t r, bool has_left, bool is_gone) noexcept {
    peer& its = peer_of(r);
    its.has_ended = true;
    its.has_left = has_left;
    its.is_gone = is_gone;
  }
  /// Whether no message from the rank `r` is to be expected any more.
  [[nodiscard]] bool has_ended(rank_t r) const noexcept { return peer_of(r).has_ended || suspects(r); }
  /// Whether the process of `r` has ended.
  [[nodiscard]] bool has_died(rank_t r) const noexcept { return peer_of(r).has_died; }
  /// Whether the rank `r` has left in order, or is lost: its process has ended or, if that is on another host, its
  /// connection has failed. A rank that has given up its messages is neither, and closes its connections, too.
  [[nodiscard]] bool has_left(rank_t r) const noexcept {
    const peer& its = peer_of(r);
    return its.has_left || its.has_died || (!its.is_local && !its.has_ended && suspects(r));
  }

  /// The connection to `r` has failed, for the reason `why`.
  void suspect(rank_t r, const char* why) noexcept { deaths_.suspect(r, why, endpoint::now()); }
  /// Calls `dead(rank, why)` for each rank that has died, as far as this rank can know at the time `now`. That a
  /// process has ended says more than UCX does of its connection. Returns the time of the next check.
  template <class Dead>
  double confirm_deaths(double now, Dead dead) {
    if (now >= next_look_at_processes_) { // a rank that sleeps learns at once that a process has ended
      next_look_at_processes_ = now + 0.05;
      look_at_processes();
    }
    return deaths_.confirm(
        now, [this](rank_t r) { return peer_of(r).has_ended; },
        [&](rank_t r, const char* why) { dead(r, peer_of(r).has_died ? process_has_ended : why); });
  }
  /// Finds the processes that have ended.
  void look_at_processes() noexcept {
    descriptors_.take_ended([this](rank_t r) { set_died(r); });
  }

  // --- sleep ---

  /// Whether UCX has no events, so that the next one ends `wait`.
  [[nodiscard]] bool arm() const { return is_silent_ || worker_.arm(); }
  /// Sleeps until something happens, at most for `seconds`. Returns whether a process has ended.
  bool wait(double seconds) noexcept { return descriptors_.wait(seconds); }
  /// Ends the present `wait` of another thread, or the next one.
  void wake() noexcept { descriptors_.wake(); }

 private:
  /// A message that waits until a connection is open.
  struct waiting {
    waiting* next = nullptr;
    std::span<const std::byte> head;
    ucx_payload what;
    ucp_send_nbx_callback_t ended;
    void* record;
  };
  struct peer {
    peer(ucx_connections& all, rank_t r, std::string&& of_worker, bool local, bool ucx_watches) noexcept
        : owner(&all), rank(r), address(std::move(of_worker)), is_local(local), is_watched(ucx_watches) {}
    ucx_connections* owner;
    rank_t rank;
    std::string address;    // of the worker
    bool is_local;          // whether its process is on this host
    bool is_watched;        // whether UCX tells that a connection has failed
    bool has_ended = false; // whether the last control message, `left` or `gone`, has arrived
    bool has_left = false;  // whether it has ended because it has left
    bool is_gone = false;   // whether it has ended and waits for no last message of this rank
    bool has_died = false;  // whether its process has ended
    ucp_ep_h endpoint = nullptr;
    std::uint32_t sent = 0;    // number of messages sent to this peer, modulo 2^32
    bool is_opening = false;   // whether it is in `opening_`
    bool is_connected = false; // whether UCX has completed this rank's half of the connection
    bool is_closed = false;    // whether this rank has closed the connection, and opens no other one
    int hellos_sent = 0;       // at most two
    int hellos_received = 0;
    ucx_frame::room hello; // the one that UCX is sending
    record_queue<waiting> unsent;
  };
  /// A control message that UCX is sending.
  struct departure {
    departure* next = nullptr;
    ucx_connections* owner = nullptr;
    bool is_abort = false;
    ucx_frame::room bytes;
  };
  [[nodiscard]] peer& peer_of(rank_t r) noexcept { return peers_[static_cast<std::size_t>(r)]; }
  [[nodiscard]] const peer& peer_of(rank_t r) const noexcept { return peers_[static_cast<std::size_t>(r)]; }
  /// The flags of `ucp_am_send_nbx` for a message to `its` with the payload `what`. What is in device memory stays
  /// there until the receiver says where it goes; UCX would copy it to the host.
  [[nodiscard]] std::uint32_t flags_to(const peer& its, const ucx_payload& what) const noexcept {
    if (what.on_device) return UCP_AM_SEND_FLAG_RNDV;
    return copies_between_hosts_ && !its.is_local ? UCP_AM_SEND_FLAG_EAGER : 0;
  }
  static constexpr const char* process_has_ended = "its process has ended";
  void set_died(rank_t r) noexcept {
    peer_of(r).has_died = true;
    suspect(r, process_has_ended);
  }
  [[nodiscard]] bool suspects(rank_t r) const noexcept { return deaths_.suspects(r); }

  /// Opens the endpoint to the rank `its`, unless the rank has left or died, as far as this rank can know. With
  /// `may_look`, first looks whether it has, which may end operations.
  [[gnu::cold]] void connect(peer& its, bool may_look) {
    for (int i = 0; may_look && i < 1000 && poll(); ++i) continue;
    look_at_processes();
    if (is_silent_ || its.endpoint != nullptr || its.is_closed || its.is_gone || suspects(its.rank)) return;
    try {
      its.endpoint = worker_.connect(its.address, its.is_watched, &on_failure, &its);
    } catch (const transport_error& why) { // shared memory of a process that ends is gone before the process is
      for (const double end = endpoint::now() + ucx_deaths::patience; !suspects(its.rank); rest(1e-3)) {
        if (endpoint::now() >= end) {
          raise<transport_error>({"rank ", own_, " cannot reach rank ", its.rank, ": ", why.what(),
                                  "; expected the same transports on all ranks, and devices that reach each other"});
        }
        look_at_processes();
      }
    }
    if (!its.is_watched || its.endpoint == nullptr) return;
    start_opening(its);
    void* const request = worker_.start_flush(its.endpoint, &on_connected, &its);
    its.is_connected = request == nullptr;
    if (UCS_PTR_IS_ERR(request)) suspect(its.rank, ucs_status_string(UCS_PTR_STATUS(request)));
  }

  // --- opening a connection that UCX watches ---

  // UCX 1.13 ends the program by an assertion if a connection fails while an answer of UCX to the peer waits, because
  // this rank's half of the connection is not complete, or is busy. So each rank first sends `hello`, when its half is
  // complete. When that of the peer has arrived, it makes UCX ask the peer, by a second `hello`. When that of the peer
  // has arrived, UCX has answered, and other messages may go.

  [[nodiscard]] static bool is_open(const peer& its) noexcept { return !its.is_watched || its.hellos_received == 2; }
  [[nodiscard]] bool is_lost(const peer& its) const noexcept { return its.endpoint == nullptr || suspects(its.rank); }
  void start_opening(peer& its) noexcept {
    if (std::exchange(its.is_opening, true)) return;
    opening_.push_back(&its); // which has memory for all
  }
  /// Opens the connections in `opening_`, as far as that is possible now, and sends what waits for them. Returns
  /// whether anything has happened.
  [[gnu::cold]] bool open_all() noexcept {
    bool news = false;
    for (std::size_t i = 0; i < opening_.size();) {
      peer& its = *opening_[i];
      news = open(its) || news;
      if (!is_open(its) && !is_lost(its)) {
        ++i;
        continue;
      }
      its.is_opening = false;
      opening_[i] = opening_.back();
      opening_.pop_back();
      while (waiting* const w = its.unsent.pop_front()) send_now(its, w);
      news = true;
    }
    return news;
  }
  /// Goes on to open the connection to `its`. Returns whether anything has been sent.
  bool open(peer& its) noexcept {
    try {
      if (its.endpoint == nullptr) connect(its, false);
    } catch (...) { // UCX cannot reach the peer
      suspect(its.rank, "it cannot be reached");
    }
    if (is_lost(its) || !its.is_connected || its.hellos_sent == 2 || its.hellos_sent > its.hellos_received)
      return false;
    // With this flag, UCX first asks the peer which of its endpoints this is, as it does before a long message.
    const std::uint32_t asks = its.hellos_sent++ == 1 ? UCP_AM_SEND_FLAG_REPLY : 0;
    const auto hello = ucx_frame{0, own_, ucx_frame::hello}.write(its.hello);
    void* const request = worker_.send(its.endpoint, hello, {}, &on_hello_sent, &its, asks);
    if (UCS_PTR_IS_ERR(request)) suspect(its.rank, ucs_status_string(UCS_PTR_STATUS(request)));
    return true;
  }
  void send_now(const peer& its, waiting* w) noexcept {
    void* request = UCS_STATUS_PTR(its.is_closed ? UCS_ERR_CANCELED : UCS_ERR_CONNECTION_RESET);
    if (!is_lost(its))
      request = worker_.send(its.endpoint, w->head, w->what, w->ended, w->record, flags_to(its, w->what));
    if (!UCS_PTR_IS_PTR(request)) w->ended(nullptr, UCS_PTR_STATUS(request), w->record);
    waiting_.recycle(w);
  }
  static void on_connected(void* request, ucs_status_t status, void* its) noexcept {
    ucp_request_free(request);
    static_cast<peer*>(its)->is_connected = status == UCS_OK;
  }
  static void on_hello_sent(void* request, ucs_status_t, void*) noexcept { ucp_request_free(request); }

  static void on_failure(void* its, ucp_ep_h, ucs_status_t status) noexcept {
    const peer& other = *static_cast<peer*>(its);
    other.owner->suspect(other.rank, ucs_status_string(status));
  }

  static void on_note_sent(void* request, ucs_status_t, void* record) noexcept {
    auto* const d = static_cast<departure*>(record);
    if (request != nullptr) ucp_request_free(request);
    if (d->owner->is_silent_) return;
    --d->owner->notes_in_flight_;
    d->owner->aborts_in_flight_ -= d->is_abort ? 1 : 0;
    d->owner->recycle(d);
  }
  void recycle(departure* d) noexcept { (d->is_abort ? aborts_ : notes_).recycle(d); }

  rank_t own_;
  bool copies_between_hosts_ = ucx_copies_between_hosts();
  bool is_silent_ = false;
  std::size_t notes_in_flight_ = 0;
  std::size_t aborts_in_flight_ = 0;
  double next_look_at_processes_ = 0;
  slab<departure> notes_;
  slab<departure> aborts_; // with memory for the reason of one abort from the start
  ucx_deaths deaths_;
  slab<waiting> waiting_;
  fixed_vector<peer> peers_;
  std::vector<peer*> opening_; // those with a connection to open, and those with messages to end
  ucx_worker worker_;          // destroyed before what UCX may use
  ucx_descriptors descriptors_;
};

} // namespace spar::inline v0_1::detail
