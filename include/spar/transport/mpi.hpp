// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ranks of an MPI communicator.
#pragma once

#include <spar/core/network_model.hpp>
#include <spar/runtime/communicator_rank.hpp>
#include <spar/runtime/tasks/rank_mutex.hpp>
#include <spar/transport/mpi/communicator.hpp>
#include <spar/transport/mpi/port.hpp>

#include <utility>

namespace spar {

/// One rank of an MPI communicator. Make it after MPI_Init and destroy it before MPI_Finalize; both are collective, but
/// the rank of a dead communicator may be destroyed alone.
class mpi : public communicator_rank<mpi_port> {
 public:
  /// Duplicates `comm` (collective over it). Throws `invalid_argument` where MPI is not initialised or `comm` is null.
  explicit mpi(MPI_Comm comm = MPI_COMM_WORLD, const mpi_options& options = {})
      : mpi(detail::owned_communicator::duplicate(comm), options, {}) {}

  /// The ranks that give the same colour, in order of their keys, with the same model of the network (collective over
  /// this communicator). Throws `invalid_argument` for the colour MPI_UNDEFINED, `peer_failed` and `timeout` as calls
  /// do.
  [[nodiscard]] mpi split(int colour, int key) {
    const detail::rank_lock lock(port().shared());
    port().meet(); // MPI's own split would wait for a rank that has failed
    return mpi(port().communicator().split(colour, key), port().options(), network());
  }
  /// Seconds by MPI's clock, which is virtual where MPI is simulated.
  [[nodiscard]] static double now() noexcept { return mpi_port::now(); }
  /// The duplicate on which spar's messages travel.
  [[nodiscard]] MPI_Comm communicator() const noexcept { return port().communicator().get(); }

 private:
  mpi(detail::owned_communicator&& comm, const mpi_options& options, const network_model& network)
      : communicator_rank(std::move(comm), options, network) {}
};

} // namespace spar
