// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The control messages of a rank over MPI: a communicator of their own, and a receive from anybody that is always
// posted.
#pragma once

#include <spar/core/control.hpp>
#include <spar/transport/mpi_communicator.hpp>

namespace spar::detail {

class mpi_control {
 public:
  /// Collective over `beside`, of which it takes a duplicate.
  explicit mpi_control(const owned_communicator& beside) : comm_(owned_communicator::duplicate(beside.get())) {
    receive();
  }
  mpi_control(const mpi_control&) = delete;
  ~mpi_control() {
    int finalised = 0;
    MPI_Finalized(&finalised);
    if (finalised != 0) return;
    MPI_Cancel(&request_);
    MPI_Wait(&request_, MPI_STATUS_IGNORE);
  }

  /// Takes a message that has arrived; false where none has. Throws `corrupt_message` for a damaged one.
  bool take(control_message& note, rank_t ranks) {
    int arrived = 0;
    check_mpi(MPI_Test(&request_, &arrived, MPI_STATUS_IGNORE), "MPI_Test");
    if (arrived == 0) return false;
    note = arriving_;
    receive();
    note.validate(ranks);
    return true;
  }

  /// Does not free the communicator.
  void let_go() noexcept { comm_.let_go(); }
  [[nodiscard]] MPI_Comm get() const noexcept { return comm_.get(); }

 private:
  void receive() {
    check_mpi(MPI_Irecv(&arriving_, sizeof(arriving_), MPI_BYTE, MPI_ANY_SOURCE, 0, comm_.get(), &request_),
              "MPI_Irecv");
  }

  owned_communicator comm_;
  MPI_Request request_ = MPI_REQUEST_NULL;
  control_message arriving_;
};

} // namespace spar::detail
