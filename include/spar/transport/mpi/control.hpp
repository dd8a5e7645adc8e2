// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The control messages of a rank over MPI: a communicator of their own, and a receive from anybody that is always
// posted.
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

/// Of one rank; also who has sent all that it will, and how ranks wait for each other where one may fail meanwhile.
class mpi_control {
 public:
  static constexpr int notes = 0; ///< the tag of control messages

  /// Collective over `beside`, of which it takes a duplicate.
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

  /// Takes a message that has arrived, but keeps last words to itself; false where there is none. Throws
  /// `corrupt_message` for a damaged one.
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

  /// Tells the others, unless this rank has had its last word, that what it was sending has left or that it is gone.
  template <class Net>
  void end_with(control_message::purpose last_word, Net& net) noexcept {
    control_message::purpose& own = last_words_[static_cast<std::size_t>(net.rank())];
    if (own != nothing) return;
    own = last_word;
    tell(net, last_word, "");
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

  /// Waits until all ranks of `net`, whose control messages these are, have called it. Throws `peer_failed` and
  /// `timeout`, and is dead then, as a collective does. A barrier by dissemination (Hensgen, Finkel and Manber 1988),
  /// twice: whom others have given up before it came may pass the first one, but not the second. In that no call of
  /// this rank goes on, which might fail by itself; `look()` heeds control messages.
  template <class Net, class Look>
  void meet(Net& net, Look look) {
    const rank_t rank = net.rank(), size = net.size();
    MPI_Request due = MPI_REQUEST_NULL;
    try {
      if (net.dead()) net.failure().raise_peer_failed();
      for (const bool first : {true, false}) {
        const double begin = net.now();
        for (rank_t step = 1; step < size; step *= 2) {
          const rank_t from = (rank + size - step) % size, to = (rank + step) % size;
          MPI_Request sent = MPI_REQUEST_NULL;
          check_mpi(MPI_Irecv(nullptr, 0, MPI_BYTE, from, meeting, comm_.get(), &due), "MPI_Irecv");
          check_mpi(MPI_Isend(nullptr, 0, MPI_BYTE, to, meeting, comm_.get(), &sent), "MPI_Isend");
          check_mpi(MPI_Request_free(&sent), "MPI_Request_free");
          while (!has_ended(due)) {
            if (first)
              net.progress(false);
            else
              look();
            if (net.dead()) net.failure().raise_peer_failed();
            if (net.now() - begin > net.deadline()) {
              raise<timeout>({"rank ", rank, " has waited for ", net.deadline(), " s for all others to split"});
            }
            sched_yield();
          }
        }
      }
    } catch (...) {
      if (due != MPI_REQUEST_NULL) withdraw(due);
      abort_and_rethrow(net);
    }
  }

  /// Does not free the communicator.
  void let_go() noexcept { comm_.let_go(); }
  [[nodiscard]] MPI_Comm get() const noexcept { return comm_.get(); }

 private:
  static constexpr int meeting = 1;                                // a tag
  static constexpr auto nothing = control_message::purpose::abort; // no last word

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
