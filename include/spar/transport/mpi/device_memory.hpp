// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Whether the MPI library reads and writes device memory ("CUDA-aware MPI").
#pragma once

#include <spar/transport/mpi/envelope.hpp>
#include <spar/transport/mpi/port.hpp>

#include <cstddef>

#include <mpi.h>
#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif

namespace spar {

/// Whether a `device_port` may send `bytes` bytes from device memory over MPI: the MPI library must say that it takes
/// device memory, for which Open MPI and MPICH 4 have a function, the program must not forbid it, and the payload must
/// not be part of the envelope, which the processor writes.
inline bool takes_device_memory([[maybe_unused]] const mpi_port& net, [[maybe_unused]] std::size_t bytes) {
#if defined(MPIX_CUDA_AWARE_SUPPORT) || (defined(MPICH_NUMVERSION) && MPICH_NUMVERSION >= 40000000)
  return net.options().device_memory && bytes > enclosed_bytes && MPIX_Query_cuda_support() == 1;
#else
  return false;
#endif
}

} // namespace spar
