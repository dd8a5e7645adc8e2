// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Control messages over MPI, sent on a separate communicator, where a receive from any source is always posted.
#pragma once

#include <spar/core/error.hpp>
#include <spar/core/memory/link.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/abort.hpp>
#include <spar/runtime/endpoint.hpp>
#include <spar/runtime/messages/control_message.hpp>
#include <spar/runtime/transport_concept.hpp>
#include <spar/transport/mpi/communicator.hpp>
#include <spar/transport/mpi/lost.hpp>

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

namespace spar::inline v0_1::detail {

/// Sends and receives the control messages of one rank. Also records from which ranks the last control message, `gone`
/// or `left`, has arrived, and provides a barrier that throws if a rank fails.
///
/// Owned by the transport and, once the rank has left, by `mpi_leavers`: an MPI communicator can be freed only when the
/// last message of each rank has arrived.
class mpi_control : public link {
 public:
  static constexpr int notes = 0; ///< the MPI tag of control messages

  /// Takes the memory that control messages between `ranks` ranks need. Nothing can be sent before `open`.
  explicit mpi_control(rank_t ranks)
      : comm_(owned_communicator::none()), data_(owned_communicator::none()),
        last_words_(static_cast<std::size_t>(ranks), nothing), is_flushed_(static_cast<std::size_t>(ranks), false) {
    last_sends_.reserve(last_notes_.size() * last_words_.size());
  }
  mpi_control(const mpi_control&) = delete;
  /// Posts a receive for the control messages of the transport `node`, which have the communicator `own`.
  void open(owned_communicator&& own, const endpoint& node) {
    comm_ = std::move(own);
    receive();
    node_ = &node;
  }
  [[nodiscard]] bool is_open() const noexcept { return node_ != nullptr; }
  ~mpi_control() {
    if (!mpi_is_finalised()) withdraw(request_);
  }

  /// Stores in `note` the next control message that has arrived; returns false if there is none. Records a message
  /// `gone` or `left`, which is the last message of its source. Throws `corrupt_message` if a message is damaged or if
  /// its source is not a rank of the communicator.
  bool take(control_message& note) {
    for (const auto ranks = static_cast<rank_t>(last_words_.size()); has_arrived();) {
      note = arriving_;
      receive();
      note.validate(ranks);
      const bool is_last = note.what == control_message::purpose::gone || note.what == control_message::purpose::left;
      if (is_last && note.last != 0) last_words_[static_cast<std::size_t>(note.source)] = note.what;
      if (note.what != control_message::purpose::gone) return true;
    }
    return false;
  }

  /// Calls `lost(rank)` for each rank whose process has ended without a last message, as far as `take` has learnt.
  template <class Lost>
  void take_lost(Lost lost) {
    for (; !lost_.empty(); lost_.pop_back()) {
      control_message::purpose& its = last_words_[static_cast<std::size_t>(lost_.back())];
      if (its != nothing) continue;
      its = control_message::purpose::gone;
      lost(lost_.back());
    }
  }

  /// Sends `last_word` with `text` to all other ranks as the last control message of this rank, unless this rank has
  /// sent a last message before. `last_word` is `left` if all messages of this rank have left, or `gone` if this rank
  /// has given up messages in flight. Does not wait until the message has left.
  void end_with(control_message::purpose last_word, std::string_view text) noexcept {
    const rank_t rank = comm_.rank();
    control_message::purpose& own = last_words_[static_cast<std::size_t>(rank)];
    if (own != nothing) return;
    own = last_word;
    const std::size_t parts = std::max<std::size_t>((text.size() + part_length - 1) / part_length, 1);
    for (std::size_t part = 0; part < parts; ++part) {
      last_notes_[part] = part_of(last_word, rank, text, part * part_length);
      send_to_others(&last_notes_[part], sizeof(control_message), notes, comm_.get(),
                     [this](MPI_Request sent) { last_sends_.push_back(sent); });
    }
  }
  [[nodiscard]] bool is_gone(rank_t rank) const noexcept {
    return last_words_[static_cast<std::size_t>(rank)] == control_message::purpose::gone;
  }
  /// Whether the last control message of `rank` has arrived: no call of `rank` is in flight any more.
  [[nodiscard]] bool has_left(rank_t rank) const noexcept {
    return last_words_[static_cast<std::size_t>(rank)] != nothing;
  }
  [[nodiscard]] bool all_have_ended() const noexcept { return !has(nothing); }

  /// A barrier: waits until all ranks of `net` have called `meet`; `net` is the transport to which these control
  /// messages belong. Throws `peer_failed` if a rank fails or has left, and `timeout` if a rank is missing at the
  /// deadline; the communicator is dead after either error. Runs the dissemination barrier (Hensgen, Finkel and Manber
  /// 1988) twice: a late rank may pass the first barrier although the other ranks have given up, but cannot pass the
  /// second, in which those ranks take no part. During the second barrier, the pending calls of this rank make no
  /// progress, because a call might fail; the rank only calls `look()`, which handles control messages.
  template <class Net, class Look>
  void meet(Net& net, Look look) {
    const rank_t rank = net.rank(), size = net.size();
    MPI_Request receiving = MPI_REQUEST_NULL;
    try {
      if (net.dead()) net.failure().raise_peer_failed();
      for (const bool first : {true, false}) {
        const double begin = net.now();
        for (rank_t step = 1; step < size; step *= 2) {
          const rank_t from = (rank + size - step) % size, to = (rank + step) % size;
          double missed = 0; // when this rank first knew that `from` has left
          MPI_Request sent = MPI_REQUEST_NULL;
          check_mpi(MPI_Irecv(nullptr, 0, MPI_BYTE, from, meeting, comm_.get(), &receiving), "MPI_Irecv");
          check_mpi(MPI_Isend(nullptr, 0, MPI_BYTE, to, meeting, comm_.get(), &sent), "MPI_Isend");
          check_mpi(MPI_Request_free(&sent), "MPI_Request_free");
          while (!has_ended(receiving)) {
            if (first)
              net.progress(false);
            else
              look();
            if (net.dead()) net.failure().raise_peer_failed();
            if (missed == 0 && net.node().leavers().find(from) != nullptr) missed = net.now();
            if (missed > 0 && net.now() - missed > 1) { // what `from` has sent before has arrived by now
              raise<peer_failed>({"rank ", from, " has left, but rank ", rank, " waits for all ranks to call split"});
            }
            if (net.now() - begin > net.deadline()) {
              raise<timeout>(
                  {"rank ", rank, " has waited for ", net.deadline(), " s for all other ranks to call split"});
            }
            sched_yield();
          }
        }
      }
    } catch (...) {
      is_lost_ = true; // messages of this barrier may remain in the communicator
      if (receiving != MPI_REQUEST_NULL) withdraw(receiving);
      abort_and_rethrow(net);
    }
  }

  [[nodiscard]] MPI_Comm get() const noexcept { return comm_.get(); }

  /// Called when this rank leaves, has sent its last message and sends nothing on `data` any more, the communicator of
  /// its calls. `is_dead` says whether the communicator has failed, `is_lost` whether MPI may still use memory of a
  /// message, and `deadline` for how many seconds MPI_Finalize may wait for the other ranks.
  void retire(owned_communicator&& data, bool is_dead, bool is_lost, double deadline) noexcept {
    node_ = nullptr;
    data_ = std::move(data);
    is_dead_ = is_dead;
    is_lost_ = is_lost_ || is_lost;
    deadline_ = deadline;
    is_retired_ = true;
  }
  [[nodiscard]] bool is_retired() const noexcept { return is_retired_; }
  /// Called when the empty message of `peer` has arrived, behind its other messages (see `has_received_all`).
  void note_flush(rank_t peer) noexcept { is_flushed_[static_cast<std::size_t>(peer)] = true; }

  /// For a rank that has left: handles what has arrived, and returns whether nothing more will arrive. This object can
  /// then be destroyed, which frees both communicators. They are not freed if a rank has given up messages, which might
  /// still arrive, perhaps in a later communicator to which MPI gives the same number. If a rank has failed, messages
  /// of its calls may still be on their way when all ranks have ended; each rank then sends an empty message behind its
  /// other messages to each rank, and discards what arrives before the empty message.
  bool has_received_all() noexcept {
    try {
      for (control_message note; take(note);) is_dead_ = is_dead_ || note.what == control_message::purpose::abort;
      take_lost([this](rank_t) { is_dead_ = true; });
      int sent = 1;
      check_mpi(MPI_Testall(static_cast<int>(last_sends_.size()), last_sends_.data(), &sent, MPI_STATUSES_IGNORE),
                "MPI_Testall");
      if (sent == 0 || !all_have_ended()) return false;
      is_lost_ = is_lost_ || has(control_message::purpose::gone);
      if (!is_lost_ && is_dead_ && !flush()) return false;
    } catch (...) { // MPI has failed, or a control message is damaged
      is_lost_ = true;
    }
    if (is_lost_) {
      data_.forget();
      comm_.forget();
    }
    return true;
  }

  /// For an object whose transport still exists in MPI_Finalize, or has never existed: tells the other ranks that this
  /// rank has left, and how many calls it has started. A call in flight counts, too: messages of it may already be on
  /// their way, so another rank that waits in this call waits until they can arrive no more (see `is_silent`). What the
  /// calls of this rank have sent stays where it is.
  void end_with_program() noexcept {
    if (is_retired_) return;
    const calls_of_leaver calls = node_->calls_so_far();
    end_with(control_message::purpose::left, node_->dead() ? std::string_view() : calls.text());
    is_dead_ = is_lost_ = true;
  }
  /// Whether MPI_Finalize, which has begun to wait at the time `begin`, waits for the last messages of other ranks:
  /// until the deadline or, once the communicator is known to be dead, for one second.
  [[nodiscard]] bool is_awaited(double begin) noexcept {
    const double now = MPI_Wtime();
    if (is_dead_ && died_ == 0) died_ = now;
    return is_dead_ ? now < died_ + 1 : now < begin + deadline_;
  }
  /// In MPI_Finalize, which waits no more: receives no further messages.
  void close() noexcept { withdraw(request_); }

 private:
  static constexpr int meeting = 1; // the MPI tag of the messages of `meet`
  static constexpr std::size_t part_length = std::tuple_size_v<decltype(control_message::text)>;
  static constexpr auto nothing = control_message::purpose::abort; // in `last_words_`: no `gone` or `left` yet

  [[nodiscard]] bool has(control_message::purpose word) const noexcept {
    return std::find(last_words_.begin(), last_words_.end(), word) != last_words_.end();
  }
  /// Sends an empty message on `data_` behind the other messages to each rank, and discards what the other ranks have
  /// sent before theirs. Returns whether all of these have arrived.
  bool flush() {
    const auto own = static_cast<std::size_t>(comm_.rank());
    const auto forget = [](MPI_Request sent) { MPI_Request_free(&sent); };
    if (!is_flushed_[own]) send_to_others(nullptr, 0, 0, data_.get(), forget);
    is_flushed_[own] = true;
    for (rank_t peer = 0; peer < comm_.size(); ++peer) {
      for (int there = 1; there != 0 && !is_flushed_[static_cast<std::size_t>(peer)];) {
        MPI_Status status;
        check_mpi(MPI_Iprobe(peer, MPI_ANY_TAG, data_.get(), &there, &status), "MPI_Iprobe");
        if (there == 0) break;
        int bytes = 0;
        MPI_Get_count(&status, MPI_BYTE, &bytes);
        std::vector<char> nowhere(static_cast<std::size_t>(bytes));
        check_mpi(MPI_Recv(nowhere.data(), bytes, MPI_BYTE, peer, status.MPI_TAG, data_.get(), MPI_STATUS_IGNORE),
                  "MPI_Recv");
        if (bytes == 0) note_flush(peer);
      }
    }
    return std::find(is_flushed_.begin(), is_flushed_.end(), false) == is_flushed_.end();
  }
  /// Starts to send `bytes` bytes to each other rank of `comm`, and passes the requests to `keep`.
  template <class Keep>
  static void send_to_others(const void* what, std::size_t bytes, int tag, MPI_Comm comm, Keep keep) {
    int rank = 0, size = 0;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      MPI_Request sent = MPI_REQUEST_NULL;
      MPI_Isend(what, static_cast<int>(bytes), MPI_BYTE, peer, tag, comm, &sent);
      keep(sent);
    }
  }

  void receive() {
    check_mpi(MPI_Irecv(&arriving_, sizeof(arriving_), MPI_BYTE, MPI_ANY_SOURCE, notes, comm_.get(), &request_),
              "MPI_Irecv");
  }
  /// Whether a control message has arrived. If processes have ended, MPI says so here.
  bool has_arrived() {
    int ended = 0;
    const int code = MPI_Test(&request_, &ended, MPI_STATUS_IGNORE);
    if (tells_of_lost_process(code)) {
      lost_ = lost_processes(comm_.get());
      return false;
    }
    check_mpi(code, "MPI_Test");
    return ended != 0;
  }
  static bool has_ended(MPI_Request& request) {
    int ended = 0;
    check_mpi(MPI_Test(&request, &ended, MPI_STATUS_IGNORE), "MPI_Test");
    return ended != 0;
  }
  static void withdraw(MPI_Request& receive) noexcept {
    if (receive == MPI_REQUEST_NULL) return;
    MPI_Cancel(&receive);
    MPI_Wait(&receive, MPI_STATUS_IGNORE);
  }

  const endpoint* node_ = nullptr; // the transport, from `open` to `retire`
  owned_communicator comm_;
  owned_communicator data_;  // once this rank has left: the communicator of its calls
  std::vector<rank_t> lost_; // ranks whose processes have ended, for `take_lost`
  MPI_Request request_ = MPI_REQUEST_NULL;
  control_message arriving_;
  std::array<control_message, control_message::most_parts> last_notes_; // the last message of this rank, in parts
  std::vector<MPI_Request> last_sends_;
  std::vector<control_message::purpose> last_words_; // the last message, `gone` or `left`, of each rank
  std::vector<bool> is_flushed_;                     // whether the last message on `data_` of each rank has arrived
  double deadline_ = 1;
  double died_ = 0; // when MPI_Finalize has noticed that the communicator is dead
  bool is_dead_ = false;
  bool is_lost_ = false; // whether messages may remain in a communicator
  bool is_retired_ = false;
};

/// The control messages of this process: of its communicators in use, and of those that it has left before other ranks,
/// whose last messages are still to be received. Looks for these messages whenever the process creates or leaves a
/// communicator, and at last in MPI_Finalize.
class mpi_leavers {
 public:
  static mpi_leavers& of_process() {
    static auto* const all = new mpi_leavers; // never destroyed: MPI may be finalised late
    return *all;
  }

  void add(mpi_control& control) {
    const std::lock_guard lock(mutex_);
    control.join_before(all_);
    if (key_ == MPI_KEYVAL_INVALID) { // MPI_Finalize first deletes the attributes of MPI_COMM_SELF
      check_mpi(MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, &at_finalize, &key_, nullptr), "MPI_Comm_create_keyval");
      check_mpi(MPI_Comm_set_attr(MPI_COMM_SELF, key_, nullptr), "MPI_Comm_set_attr");
    }
    sweep();
  }
  void remove(mpi_control& control) noexcept {
    const std::lock_guard lock(mutex_);
    control.leave();
  }
  /// Takes over `control`, whose transport is destroyed; `args` are those of `mpi_control::retire`.
  template <class... Args>
  void retire(mpi_control& control, Args&&... args) noexcept {
    const std::lock_guard lock(mutex_);
    control.retire(std::forward<Args>(args)...);
    sweep();
  }

 private:
  mpi_leavers() = default;

  /// Destroys the control messages of which nothing more will arrive. Returns whether some remain for which
  /// MPI_Finalize, which has begun to wait at the time `begin`, has to wait.
  bool sweep(double begin = 0) noexcept {
    bool awaited = false;
    for (link* l = &all_.after(); l != &all_;) {
      auto* const control = static_cast<mpi_control*>(l);
      l = &l->after();
      if (!control->is_retired()) continue;
      if (control->has_received_all()) {
        control->leave();
        delete control;
      } else {
        awaited = awaited || control->is_awaited(begin);
      }
    }
    return awaited;
  }
  static int at_finalize(MPI_Comm, int, void*, void*) {
    mpi_leavers& process = of_process();
    const std::lock_guard lock(process.mutex_);
    for (link* l = &process.all_.after(); l != &process.all_; l = &l->after())
      static_cast<mpi_control*>(l)->end_with_program();
    for (const double begin = MPI_Wtime(); process.sweep(begin);) sched_yield();
    for (link* l = &process.all_.after(); l != &process.all_; l = &l->after()) static_cast<mpi_control*>(l)->close();
    return MPI_SUCCESS;
  }

  std::mutex mutex_;
  int key_ = MPI_KEYVAL_INVALID;
  link all_;
};

/// The owner of the control messages of a transport.
class mpi_control_owner {
 public:
  explicit mpi_control_owner(rank_t ranks) : all_(&mpi_leavers::of_process()), control_(new mpi_control(ranks)) {}
  mpi_control_owner(const mpi_control_owner&) = delete;
  /// As `mpi_control::open`.
  void open(owned_communicator&& own, const endpoint& node) {
    control_->open(std::move(own), node);
    all_->add(*control_);
  }
  ~mpi_control_owner() {
    if (control_ == nullptr) return;
    if (mpi_is_finalised() || !control_->is_open()) {
      all_->remove(*control_);
      delete control_;
    } else { // the construction of the transport has failed
      control_->end_with_program();
      retire(owned_communicator::none(), true, true, 0);
    }
  }
  [[nodiscard]] mpi_control* operator->() const noexcept { return control_; }

  /// Called when the rank has left: see `mpi_control::retire`.
  void retire(owned_communicator&& data, bool is_dead, bool is_lost, double deadline) noexcept {
    all_->retire(*std::exchange(control_, nullptr), std::move(data), is_dead, is_lost, deadline);
  }

 private:
  mpi_leavers* all_;
  mpi_control* control_;
};

} // namespace spar::inline v0_1::detail
