// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Turns error codes of MPI into exceptions.
#pragma once

#include <spar/core/error.hpp>

// Excludes MPI's C++ bindings, which increase compile time and cause warnings; MPI 3.0 removed these bindings.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX 1
#endif
#include <mpi.h>

#include <array>

namespace spar::inline v0_1::detail {

/// Throws `transport_error` with the name `call` of an MPI function and MPI's error text, unless `code` is MPI_SUCCESS.
inline void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING + 1> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  raise<transport_error>({call, " failed: ", text.data()});
}

/// Whether MPI_Finalize has been called, after which no other function of MPI may be called.
inline bool mpi_is_finalised() noexcept {
  int finalised = 0;
  MPI_Finalized(&finalised);
  return finalised != 0;
}

/// Throws `invalid_argument` unless MPI was initialised with MPI_THREAD_MULTIPLE, which allows several threads to call
/// MPI at the same time.
inline void require_thread_multiple() {
  int provided = MPI_THREAD_SINGLE;
  MPI_Query_thread(&provided);
  if (provided == MPI_THREAD_MULTIPLE) return;
  raise<invalid_argument>({"a progress thread needs MPI_THREAD_MULTIPLE, but MPI was initialised with ",
                           provided == MPI_THREAD_SINGLE     ? "MPI_THREAD_SINGLE"
                           : provided == MPI_THREAD_FUNNELED ? "MPI_THREAD_FUNNELED"
                                                             : "MPI_THREAD_SERIALIZED",
                           ": call MPI_Init_thread with MPI_THREAD_MULTIPLE"});
}

} // namespace spar::inline v0_1::detail
