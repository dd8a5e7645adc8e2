// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Finds out which ranks of a communicator share a host.
#pragma once

#include <spar/runtime/messages/message.hpp>
#include <spar/transport/mpi/check.hpp>

#include <mpi.h>

#include <cstddef>
#include <span>
#include <vector>

namespace spar::inline v0_1 {

namespace detail {

/// Sets `all[r]`, for each rank r of `comm`, to the lowest rank that shares memory with r. Collective over `comm`.
inline void find_hosts(MPI_Comm comm, std::span<rank_t> all) {
  MPI_Comm host = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host), "MPI_Comm_split_type");
  int first = 0;
  check_mpi(MPI_Comm_rank(comm, &first), "MPI_Comm_rank");
  const int code = MPI_Bcast(&first, 1, MPI_INT, 0, host);
  MPI_Comm_free(&host);
  check_mpi(code, "MPI_Bcast");
  check_mpi(MPI_Allgather(&first, 1, MPI_INT, all.data(), 1, MPI_INT, comm), "MPI_Allgather");
}

} // namespace detail

/// Returns, for each rank r of `comm`, the lowest rank that shares memory with r, that is, runs on the same host. The
/// result is an argument of `tree_of_hosts`. Collective over `comm`. Throws `transport_error` if a function of MPI
/// fails.
inline std::vector<rank_t> hosts_of(MPI_Comm comm) {
  int ranks = 0;
  detail::check_mpi(MPI_Comm_size(comm, &ranks), "MPI_Comm_size");
  std::vector<rank_t> all(static_cast<std::size_t>(ranks));
  detail::find_hosts(comm, all);
  return all;
}

} // namespace spar::inline v0_1
