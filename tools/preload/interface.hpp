// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the entry points of C and of Fortran share.
#pragma once

#include <mpi.h>

#include <optional>

namespace preload {

/// Once MPI is initialised, with the MPI library's own code: reads the settings. Collective over MPI_COMM_WORLD.
void after_init() noexcept;
/// Before MPI is finalised: writes the report and lets all communicators go. Collective over MPI_COMM_WORLD.
void before_finalize() noexcept;

/// Does the call and returns its code, or nothing where it is the MPI library's own.
std::optional<int> take_over(const void* send, void* receive, int count, MPI_Datatype type, MPI_Op op,
                             MPI_Comm comm) noexcept;

} // namespace preload
