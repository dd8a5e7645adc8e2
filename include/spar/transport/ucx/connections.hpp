// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The other ranks as a rank over UCX reaches them: their endpoints, the control messages to them, and whether they have
// left or died.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/error.hpp>
#include <spar/core/memory/fixed_vector.hpp>
#include <spar/core/memory/slab.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/core/util/thread.hpp>
#include <spar/runtime/endpoint.hpp>
#include <spar/runtime/messages/control_message.hpp>
#include <spar/transport/ucx/deaths.hpp>
#include <spar/transport/ucx/descriptors.hpp>
#include <spar/transport/ucx/frame.hpp>
#include <spar/transport/ucx/member.hpp>
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
    aborts_.reserve(); // reserved memory takes no pages until it is used
    const bool shares_memory = ucx_shares_memory();
    for (rank_t r = 0; r < static_cast<rank_t>(members.size()); ++r) {
      ucx_member& its = members[static_cast<std::size_t>(r)];
      const bool is_local = hosts[static_cast<std::size_t>(r)] == hosts[static_cast<std::size_t>(own)];
      peers_.emplace_back(*this, r, std::move(its.address), !is_local || !shares_memory);
      if (is_local && r != own && !descriptors_.watch(r, its.process)) suspect(r, process_has_ended);
    }
  }

  [[nodiscard]] const ucx_worker& worker() const noexcept { return worker_; }
  /// Lets UCX make progress. Returns whether UCX has done anything.
  bool poll() noexcept { return !is_silent_ && ucp_worker_progress(worker_.get()) != 0; }
  /// From now on, UCX makes no progress any more, and calls nothing of this rank that uses memory.
  void silence() noexcept { is_silent_ = true; }
  [[nodiscard]] bool is_silent() const noexcept { return is_silent_; }
  /// See `ucx_worker::keep_forever`.
  void keep_forever() noexcept { worker_.keep_forever(); }

  /// What precedes the next message to `to`.
  [[nodiscard]] ucx_frame next_frame(rank_t to, tag_t tag) const noexcept { return {peer_of(to).sent, own_, tag}; }
  /// Sends an active message with the header `head`, which begins with `next_frame`, and the payload `pieces` to the
  /// rank `to`. If the outcome is `in_flight`, UCX later calls `ended(request, status, record)`. Other operations end
  /// meanwhile only if `may_look`.
  ucx_outcome send(rank_t to, std::span<const std::byte> head, std::span<const ucp_dt_iov_t> pieces, void* record,
                   ucp_send_nbx_callback_t ended, bool may_look = true) {
    peer& its = peer_of(to);
    if (its.endpoint == nullptr) connect(its, may_look);
    if (is_silent_ || its.endpoint == nullptr || suspects(to)) return ucx_outcome::lost;
    void* const request = worker_.send(its.endpoint, head, pieces, ended, record);
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
    } catch (...) { // UCX cannot reach the peer, which the calls that need it report
    }
    if (how != ucx_outcome::in_flight) return recycle(d);
    ++notes_in_flight_;
    aborts_in_flight_ += is_abort ? 1 : 0;
  }
  /// Number of control messages whose memory UCX uses.
  [[nodiscard]] std::size_t notes_in_flight() const noexcept { return notes_in_flight_; }
  /// How many of them are aborts.
  [[nodiscard]] std::size_t aborts_in_flight() const noexcept { return aborts_in_flight_; }
  /// Waits until all messages have left, at most until the time `end`. Returns whether they have.
  bool flush(double end) noexcept {
    bool all = !is_silent_;
    for (const peer& each : peers_) {
      if (is_silent_ || each.endpoint == nullptr || each.has_died || suspects(each.rank)) continue;
      all = worker_.flush(each.endpoint, [&] { return endpoint::now() < end; }) && all;
    }
    return all;
  }

  // --- who has left or died ---

  /// The last control message of `r` has arrived. With `is_gone`, the rank waits for no last message of this rank.
  void set_ended(rank_t r, bool is_gone) noexcept {
    peer_of(r).has_ended = true;
    peer_of(r).is_gone = is_gone;
  }
  /// Whether the process of `r` has ended.
  [[nodiscard]] bool has_died(rank_t r) const noexcept { return peer_of(r).has_died; }
  /// Whether the rank `r` has left in order, or is lost: its process or its connection has ended.
  [[nodiscard]] bool has_left(rank_t r) const noexcept { return peer_of(r).has_ended || suspects(r); }

  /// The connection to `r` has failed, for the reason `why`.
  void suspect(rank_t r, const char* why) noexcept { deaths_.suspect(r, why, endpoint::now()); }
  /// Calls `dead(rank, why)` for each rank that has died, as far as this rank can know at the time `now`. Returns the
  /// time of the next check.
  template <class Dead>
  double confirm_deaths(double now, Dead dead) {
    if (now >= next_look_at_processes_) { // a rank that sleeps learns at once that a process has ended
      next_look_at_processes_ = now + 0.05;
      look_at_processes();
    }
    return deaths_.confirm(now, [this](rank_t r) { return peer_of(r).has_ended; }, dead);
  }
  /// Finds the processes that have ended.
  void look_at_processes() noexcept {
    descriptors_.take_ended([this](rank_t r) {
      peer_of(r).has_died = true;
      suspect(r, process_has_ended);
    });
  }

  // --- sleep ---

  /// Whether UCX has no events, so that the next one ends `wait`.
  [[nodiscard]] bool arm() const { return is_silent_ || worker_.arm(); }
  /// Sleeps until something happens, at most for `seconds`. Returns whether a process has ended.
  bool wait(double seconds) noexcept { return descriptors_.wait(seconds); }
  /// Ends the present `wait` of another thread, or the next one.
  void wake() noexcept { descriptors_.wake(); }

 private:
  static constexpr const char* process_has_ended = "its process has ended";

  struct peer {
    peer(ucx_connections& all, rank_t r, std::string&& of_worker, bool ucx_watches) noexcept
        : owner(&all), rank(r), address(std::move(of_worker)), is_watched(ucx_watches) {}
    ucx_connections* owner;
    rank_t rank;
    std::string address;    // of the worker
    bool is_watched;        // whether UCX tells that a connection has failed
    bool has_ended = false; // whether the last control message, `left` or `gone`, has arrived
    bool is_gone = false;   // whether it has ended and waits for no last message of this rank
    bool has_died = false;  // whether its process has ended
    ucp_ep_h endpoint = nullptr;
    std::uint32_t sent = 0; // number of messages sent to this peer, modulo 2^32
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
  [[nodiscard]] bool suspects(rank_t r) const noexcept { return deaths_.suspects(r); }

  /// Opens the endpoint to the rank `its`, unless the rank has left or died, as far as this rank can know. With
  /// `may_look`, first looks whether it has, which may end operations.
  [[gnu::cold]] void connect(peer& its, bool may_look) {
    for (int i = 0; may_look && i < 1000 && poll(); ++i) continue;
    look_at_processes();
    if (is_silent_ || its.is_gone || suspects(its.rank)) return;
    try {
      its.endpoint = worker_.connect(its.address, its.is_watched, &on_failure, &its);
    } catch (const transport_error&) { // shared memory of a process that ends is gone before the process is
      for (const double end = endpoint::now() + ucx_deaths::patience; !suspects(its.rank); rest(1e-3)) {
        if (endpoint::now() >= end) throw;
        look_at_processes();
      }
    }
  }
  static void on_failure(void* its, ucp_ep_h, ucs_status_t status) noexcept {
    const peer& other = *static_cast<peer*>(its);
    other.owner->suspect(other.rank, ucs_status_string(status));
  }

  static void on_note_sent(void* request, ucs_status_t, void* record) noexcept {
    auto* const d = static_cast<departure*>(record);
    ucp_request_free(request);
    if (d->owner->is_silent_) return;
    --d->owner->notes_in_flight_;
    d->owner->aborts_in_flight_ -= d->is_abort ? 1 : 0;
    d->owner->recycle(d);
  }
  void recycle(departure* d) noexcept { (d->is_abort ? aborts_ : notes_).recycle(d); }

  rank_t own_;
  bool is_silent_ = false;
  std::size_t notes_in_flight_ = 0;
  std::size_t aborts_in_flight_ = 0;
  double next_look_at_processes_ = 0;
  slab<departure> notes_;
  slab<departure> aborts_; // with memory for the reason of one abort from the start
  ucx_deaths deaths_;
  fixed_vector<peer> peers_;
  ucx_worker worker_; // destroyed before what UCX may use
  ucx_descriptors descriptors_;
};

} // namespace spar::inline v0_1::detail
