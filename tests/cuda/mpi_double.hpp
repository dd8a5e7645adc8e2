// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

namespace mpi_double {

/// Whether the MPI library says that it takes pointers to device memory.
extern bool takes_device_memory;
/// The number of MPI messages that this rank has sent from, and received in, device memory.
extern int sent, received;

} // namespace mpi_double
