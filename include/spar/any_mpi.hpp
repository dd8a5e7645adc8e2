// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An any_transport from an MPI communicator, whose code is in the compiled library for this MPI library.
#pragma once

#include <spar/any.hpp>

#include <span>

#include <mpi.h>

namespace spar::inline v0_1 {

/// Returns this rank of a duplicate of `comm`, with the conditions and the errors of the constructor of `spar::mpi`.
/// Collective over `comm`.
[[nodiscard]] any_transport any_mpi(MPI_Comm comm = MPI_COMM_WORLD);

/// Writes to `hosts[r]`, for each rank r of `comm`, the lowest rank on the same host (see `hosts_of`): with these
/// numbers, an any_allreduce or an any_feedback uses the tree of the hosts. Collective over `comm`. Throws
/// `invalid_argument` if the length is not the number of ranks, and `transport_error` if a function of MPI fails.
void any_hosts(MPI_Comm comm, std::span<rank_t> hosts);

} // namespace spar::inline v0_1

#ifndef SPAR_COMPILED
#include <spar/transport/mpi_any-inl.hpp>
#endif
