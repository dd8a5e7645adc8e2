// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The transport over MPI: one rank of an MPI communicator.
#pragma once

#include <spar/core/network_model.hpp>
#include <spar/runtime/communicator_rank.hpp>
#include <spar/runtime/tasks/rank_mutex.hpp>
#include <spar/transport/mpi/communicator.hpp>
#include <spar/transport/mpi/port.hpp>

#include <utility>

namespace spar::inline v0_1 {

class rendezvous;

/// One rank of an MPI communicator. Must be constructed after MPI_Init and destroyed before MPI_Finalize. Construction
/// is collective. Destruction waits for no other rank: it tells the others that this rank has left, and their calls end
/// in `peer_failed` if they wait for a call that this rank has not made. MPI_Finalize waits for the other ranks to
/// leave.
class mpi : public communicator_rank<mpi_port> {
 public:
  /// Duplicates `comm`; collective over `comm`. `options` are those of this rank. Throws `invalid_argument` if MPI is
  /// not initialised or already finalised, or if `comm` is MPI_COMM_NULL or an intercommunicator. Throws `mismatch` if
  /// another rank has an older version of the wire format, or if this machine is big-endian and the machine of another
  /// rank is little-endian. Throws `transport_error` if a function of MPI fails, and `peer_failed` if another rank
  /// fails for any other reason, such as a lack of memory.
  explicit mpi(MPI_Comm comm = MPI_COMM_WORLD, const mpi_options& options = {})
      : mpi(detail::owned_communicator::duplicate(comm), options, {}) {}

  /// Returns a communicator of the ranks that pass the same `colour`, in ascending order of `key`, with the options and
  /// network model of this communicator. Collective over this communicator. Throws `invalid_argument` if `colour` is
  /// MPI_UNDEFINED or this rank has called `leave`, `peer_failed` if a rank has failed or left, `timeout` if a rank
  /// does not call `split` before the deadline, and `transport_error` if a function of MPI fails.
  [[nodiscard]] mpi split(int colour, int key) {
    port().check_open();
    const detail::rank_lock lock(port().shared());
    port().meet(); // throws if a rank has failed; MPI_Comm_split would wait for this rank forever
    return mpi(port().communicator().split(colour, key), port().options(), network());
  }
  /// Returns a communicator of the ranks that go on after a failure: those that call `shrink`, in their old order, with
  /// the options, network model, deadline and checksums of this communicator. They agree by the store of `meeting`, the
  /// rendezvous of the ranks of this communicator, which serves one `shrink`: `meeting.among` makes that of the next.
  /// Aborts this communicator unless it is dead already, so that the others learn that they must call `shrink`, too.
  /// Waits for each rank until it has left or has been silent for the deadline; a rank that comes later gets
  /// `peer_failed`. Then MPI makes the communicator, which has no deadline. Processes that end by a signal take the job
  /// with them in most MPI libraries, so `shrink` is for ranks that fail by exceptions. With Open MPI 5.0, only one
  /// thread of a process at a time may call `shrink`: of two threads, one sometimes waits in MPI forever. Throws
  /// `invalid_argument` if `meeting` has another rank or size, or in a coroutine that has waited for a call;
  /// `transport_error` if a function of MPI or the store fails. Needs `<spar/transport/mpi_shrink.hpp>`.
  [[nodiscard]] mpi shrink(const rendezvous& meeting);
  /// The time in seconds from MPI_Wtime, which returns virtual time if a simulator runs the MPI program.
  [[nodiscard]] static double now() noexcept { return mpi_port::now(); }
  /// The communicator on which spar sends its messages: a duplicate of the user's communicator or, after `split`, a
  /// part of a duplicate.
  [[nodiscard]] MPI_Comm communicator() const noexcept { return port().communicator().get(); }

 private:
  mpi(detail::owned_communicator&& comm, const mpi_options& options, const network_model& network)
      : communicator_rank(detail::mpi_founders(std::move(comm)), options, network) {}
  /// With the settings of `other`.
  mpi(detail::owned_communicator&& comm, const mpi& other)
      : mpi(std::move(comm), other.port().options(), other.network()) {
    set_deadline(other.deadline());
    set_checksums(other.checksums());
  }
};

} // namespace spar::inline v0_1
