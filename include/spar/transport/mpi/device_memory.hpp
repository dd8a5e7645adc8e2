// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Whether the MPI library reads and writes device memory ("CUDA-aware MPI").
#pragma once

#include <spar/core/compiler.hpp>

#include <mpi.h>
#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif

namespace spar::inline v0_1::detail {

/// Whether the MPI library says that it takes device memory, for which Open MPI and MPICH 4 have a function.
inline bool mpi_takes_device_memory() noexcept {
#if defined(MPIX_CUDA_AWARE_SUPPORT) || (defined(MPICH_NUMVERSION) && MPICH_NUMVERSION >= 40000000)
  return MPIX_Query_cuda_support() == 1;
#else
  return false;
#endif
}

} // namespace spar::inline v0_1::detail
