// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An any_transport from an MPI communicator, whose code is in the compiled library for this MPI library.
#pragma once

#include <spar/any.hpp>

#include <mpi.h>

namespace spar::inline v0_1 {

class rendezvous;

/// Returns this rank of a duplicate of `comm`, with the conditions and the errors of the constructor of `spar::mpi`.
/// Collective over `comm`.
[[nodiscard]] any_transport any_mpi(MPI_Comm comm = MPI_COMM_WORLD);
/// The same with `meeting`, a rendezvous of the ranks of `comm`, by which `shrink` of the result, and of what is made
/// from the result, agrees who goes on (see `mpi::shrink`). Has the errors of the constructor of `spar::mpi`.
[[nodiscard]] any_transport any_mpi(MPI_Comm comm, const rendezvous& meeting);

} // namespace spar::inline v0_1

#ifndef SPAR_COMPILED
#include <spar/system/any/mpi-inl.hpp>
#endif
