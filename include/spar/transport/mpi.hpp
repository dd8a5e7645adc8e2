// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The transport over MPI: one rank of an MPI communicator.
#pragma once

#include <spar/core/network_model.hpp>
#include <spar/runtime/communicator_rank.hpp>
#include <spar/runtime/tasks/rank_mutex.hpp>
#include <spar/transport/mpi/communicator.hpp>
#include <spar/transport/mpi/port.hpp>

#include <utility>

namespace spar {

/// One rank of an MPI communicator. Construct it after MPI_Init and destroy it before MPI_Finalize. Construction and
/// destruction are collective, but a rank of a dead communicator may be destroyed alone.
class mpi : public communicator_rank<mpi_port> {
 public:
  /// Duplicates `comm`; collective over `comm`. Throws `invalid_argument` if MPI is not initialised or already
  /// finalised, or if `comm` is MPI_COMM_NULL; throws `mismatch` if the ranks have different versions of the wire
  /// format or different byte orders.
  explicit mpi(MPI_Comm comm = MPI_COMM_WORLD, const mpi_options& options = {})
      : mpi(detail::owned_communicator::duplicate(comm), options, {}) {}

  /// Returns a communicator of the ranks that give the same `colour`, in order of their keys, with the same options and
  /// network model. Collective over this communicator. Throws `invalid_argument` if the colour is MPI_UNDEFINED, and
  /// `peer_failed` or `timeout` like any collective.
  [[nodiscard]] mpi split(int colour, int key) {
    const detail::rank_lock lock(port().shared());
    port().meet(); // MPI_Comm_split would wait for a failed rank
    return mpi(port().communicator().split(colour, key), port().options(), network());
  }
  /// Seconds by the clock of MPI, which is virtual if MPI is simulated.
  [[nodiscard]] static double now() noexcept { return mpi_port::now(); }
  /// The duplicated communicator that carries spar's messages.
  [[nodiscard]] MPI_Comm communicator() const noexcept { return port().communicator().get(); }

 private:
  mpi(detail::owned_communicator&& comm, const mpi_options& options, const network_model& network)
      : communicator_rank(std::move(comm), options, network) {}
};

} // namespace spar
