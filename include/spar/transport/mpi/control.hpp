// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Control messages over MPI: they travel on a separate communicator, where a receive from any source is always posted.
#pragma once

#include <spar/core/error.hpp>
#include <spar/core/util/algobase.hpp>
#include <spar/runtime/messages/control_message.hpp>
#include <spar/runtime/transport_concept.hpp>
#include <spar/transport/mpi/communicator.hpp>

#include <sched.h>

#include <cstddef>
#include <vector>

namespace spar::detail {

/// The control messages of one rank. Also records which ranks have sent their last word, and provides a barrier that
/// ends if a rank fails.
class mpi_control {
 public:
  static constexpr int notes = 0; ///< the tag of control messages

  /// Duplicates `beside`; collective over `beside`.
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

  /// Takes the next control message that has arrived; returns false if there is none. The last words of ranks, `gone`
  /// and `left`, are recorded and not returned. Throws `corrupt_message` if a message is damaged.
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

  /// Sends the last word of this rank to all others, unless one has been sent before: `left` if all its messages have
  /// left, or `gone` if it has given up messages in flight.
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

  /// A barrier: waits until all ranks of `net`, the transport of these control messages, have called it. Throws
  /// `peer_failed` or `timeout` like a collective, and the communicator is dead then. Runs the dissemination barrier
  /// (Hensgen, Finkel and Manber 1988) twice: a rank that the others have given up before it arrived may pass the first
  /// barrier, but not the second. During the second barrier, the pending calls of this rank make no progress, because
  /// one of them might fail; `look()` only handles control messages.
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
              raise<timeout>(
                  {"rank ", rank, " has waited for ", net.deadline(), " s for all other ranks to call split"});
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

  /// Gives up the communicator without freeing it.
  void let_go() noexcept { comm_.let_go(); }
  [[nodiscard]] MPI_Comm get() const noexcept { return comm_.get(); }

 private:
  static constexpr int meeting = 1;                                // the tag of the messages of `meet`
  static constexpr auto nothing = control_message::purpose::abort; // stands for no last word yet

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
  std::vector<control_message::purpose> last_words_; // of each rank
};

} // namespace spar::detail
