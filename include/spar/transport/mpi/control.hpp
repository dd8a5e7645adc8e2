// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Control messages over MPI, sent on a separate communicator, where a receive from any source is always posted.
#pragma once

#include <spar/core/error.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/abort.hpp>
#include <spar/runtime/messages/control_message.hpp>
#include <spar/runtime/transport_concept.hpp>
#include <spar/transport/mpi/communicator.hpp>

#include <sched.h>

#include <cstddef>
#include <vector>

namespace spar::detail {

/// Sends and receives the control messages of one rank. Also records from which ranks the last control message, `gone`
/// or `left`, has arrived, and provides a barrier that throws if a rank fails.
class mpi_control {
 public:
  static constexpr int notes = 0; ///< the MPI tag of control messages

  /// Duplicates the communicator `beside` and posts a receive for control messages; collective over `beside`.
  explicit mpi_control(const owned_communicator& beside) : comm_(owned_communicator::duplicate(beside.get())) {
    last_words_.assign(static_cast<std::size_t>(beside.size()), nothing);
    receive();
  }
  mpi_control(const mpi_control&) = delete;
  ~mpi_control() {
    int finalised = 0;
    MPI_Finalized(&finalised);
    if (finalised != 0) return;
    withdraw(request_);
  }

  /// Stores in `note` the next control message that has arrived; returns false if there is none. Records a message
  /// `gone` or `left`, which is the last message of its source, and continues with the next message. Throws
  /// `corrupt_message` if a message is damaged or if its source is not a rank from 0 to `ranks` - 1.
  bool take(control_message& note, rank_t ranks) {
    while (has_ended(request_)) {
      note = arriving_;
      receive();
      note.validate(ranks);
      if (note.what != control_message::purpose::gone && note.what != control_message::purpose::left) return true;
      last_words_[static_cast<std::size_t>(note.source)] = note.what;
    }
    return false;
  }

  /// Sends `last_word` to all other ranks as the last control message of this rank, unless this rank has sent a last
  /// message before. `last_word` is `left` if all messages of this rank have left, or `gone` if this rank has given up
  /// messages in flight.
  template <class Net>
  void end_with(control_message::purpose last_word, Net& net) noexcept {
    control_message::purpose& own = last_words_[static_cast<std::size_t>(net.rank())];
    if (own != nothing) return;
    own = last_word;
    broadcast_text(net, last_word, "");
  }
  [[nodiscard]] bool is_gone(rank_t rank) const noexcept {
    return last_words_[static_cast<std::size_t>(rank)] == control_message::purpose::gone;
  }
  [[nodiscard]] bool all_have_ended() const noexcept {
    for (const auto word : last_words_) {
      if (word == nothing) return false;
    }
    return true;
  }

  /// A barrier: waits until all ranks of `net` have called `meet`; `net` is the transport to which these control
  /// messages belong. Throws `peer_failed` if a rank fails, and `timeout` if a rank is missing at the deadline; the
  /// communicator is dead after either error. Runs the dissemination barrier (Hensgen, Finkel and Manber 1988) twice: a
  /// late rank may pass the first barrier although the other ranks have given up, but cannot pass the second, in which
  /// those ranks take no part. During the second barrier, the pending calls of this rank make no progress, because a
  /// call might fail; the rank only calls `look()`, which handles control messages.
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
            if (net.now() - begin > net.deadline()) {
              raise<timeout>({"rank ", rank, " has waited ", net.deadline(), " s for all other ranks to call split"});
            }
            sched_yield();
          }
        }
      }
    } catch (...) {
      if (receiving != MPI_REQUEST_NULL) withdraw(receiving);
      abort_and_rethrow(net);
    }
  }

  /// Gives up ownership of the communicator without freeing the communicator.
  void forget() noexcept { comm_.forget(); }
  [[nodiscard]] MPI_Comm get() const noexcept { return comm_.get(); }

 private:
  static constexpr int meeting = 1;                                // the MPI tag of the messages of `meet`
  static constexpr auto nothing = control_message::purpose::abort; // in `last_words_`: no `gone` or `left` yet

  void receive() {
    check_mpi(MPI_Irecv(&arriving_, sizeof(arriving_), MPI_BYTE, MPI_ANY_SOURCE, notes, comm_.get(), &request_),
              "MPI_Irecv");
  }
  static bool has_ended(MPI_Request& request) {
    int ended = 0;
    check_mpi(MPI_Test(&request, &ended, MPI_STATUS_IGNORE), "MPI_Test");
    return ended != 0;
  }
  static void withdraw(MPI_Request& receive) noexcept {
    MPI_Cancel(&receive);
    MPI_Wait(&receive, MPI_STATUS_IGNORE);
  }

  owned_communicator comm_;
  MPI_Request request_ = MPI_REQUEST_NULL;
  control_message arriving_;
  std::vector<control_message::purpose> last_words_; // the last message, `gone` or `left`, of each rank
};

} // namespace spar::detail
