// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The C interface of spar over MPI: makes communicators. Link libspar-openmpi or libspar-mpich as well as libspar.
#pragma once

#include <spar/spar.h>

#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Makes a communicator of a duplicate of `mpi`: a collective call of its ranks, after MPI_Init and before
/// MPI_Finalize. Free it before MPI_Finalize.
int spar_comm_from_mpi(MPI_Comm mpi, spar_comm* comm);
/// The same for the handle of a communicator in Fortran: an integer, or the member MPI_VAL of a type(MPI_Comm).
int spar_comm_from_mpi_fint(MPI_Fint mpi, spar_comm* comm);

#ifdef __cplusplus
}
#endif
