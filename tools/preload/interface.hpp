// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions that the entry points of C and of Fortran share.
#pragma once

#include <mpi.h>

#include <optional>

namespace preload {

/// Reads the settings; to be called after MPI is initialised. Collective over MPI_COMM_WORLD.
void after_init() noexcept;
/// Writes the report and frees all communicators; to be called before MPI is finalised. Collective over MPI_COMM_WORLD.
void before_finalize() noexcept;

/// Makes the call and returns its MPI error code, or returns nothing if the caller must pass the call to the MPI
/// library.
std::optional<int> take_over(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op,
                             MPI_Comm comm) noexcept;

} // namespace preload
