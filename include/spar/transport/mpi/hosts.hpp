// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Finds out which ranks of a communicator share a host.
#pragma once

#include <spar/runtime/messages/message.hpp>
#include <spar/transport/mpi/check.hpp>

#include <mpi.h>

#include <cstddef>
#include <vector>

namespace spar {

/// Returns, for each rank r of `comm`, the lowest rank that shares memory with r, that is, runs on the same host. The
/// result is an argument of `tree_of_hosts`. Collective over `comm`. Throws `transport_error` if a function of MPI
/// fails.
inline std::vector<rank_t> hosts_of(MPI_Comm comm) {
  MPI_Comm host = MPI_COMM_NULL;
  detail::check_mpi(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host), "MPI_Comm_split_type");
  int first = 0, ranks = 0;
  detail::check_mpi(MPI_Comm_rank(comm, &first), "MPI_Comm_rank");
  detail::check_mpi(MPI_Comm_size(comm, &ranks), "MPI_Comm_size");
  const int code = MPI_Bcast(&first, 1, MPI_INT, 0, host);
  MPI_Comm_free(&host);
  detail::check_mpi(code, "MPI_Bcast");
  std::vector<rank_t> all(static_cast<std::size_t>(ranks));
  detail::check_mpi(MPI_Allgather(&first, 1, MPI_INT, all.data(), 1, MPI_INT, comm), "MPI_Allgather");
  return all;
}

} // namespace spar
