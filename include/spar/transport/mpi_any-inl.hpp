// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The functions of <spar/any_mpi.hpp>.
#pragma once

#include <spar/core/error.hpp>
#include <spar/transport/any.hpp>
#include <spar/transport/mpi.hpp>
#include <spar/transport/mpi/hosts.hpp>

#include <span>

namespace spar::inline v0_1 {

SPAR_INLINE any_transport any_mpi(MPI_Comm comm) {
  return detail::any_access::transport(new detail::owned_rank<mpi>(comm));
}

SPAR_INLINE void any_hosts(MPI_Comm comm, std::span<rank_t> hosts) {
  int ranks = 0;
  detail::check_mpi(MPI_Comm_size(comm, &ranks), "MPI_Comm_size");
  if (hosts.size() != static_cast<std::size_t>(ranks))
    raise<invalid_argument>({"the hosts of ", ranks, " ranks need as many numbers; got room for ", hosts.size()});
  detail::find_hosts(comm, hosts);
}

} // namespace spar::inline v0_1
