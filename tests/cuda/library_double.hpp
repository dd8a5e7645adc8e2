// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Controls of the double of a library between processes that takes device memory: MPI (mpi_double.cpp) or UCX
// (ucx_double.cpp).
#pragma once

#include <cstddef>

namespace library_double {

/// Whether the library says that it takes pointers to device memory.
extern bool takes_device_memory;
/// The number of messages that this rank has sent from, and received in, device memory.
extern int sent, received;

/// The message with this number, from 1, that this rank starts to receive in device memory arrives with a flipped bit:
/// the highest one of the byte `at`, or of its last byte if there are fewer.
void damage(int message, std::size_t at);
/// The message with this number, from 1, that this rank starts to receive in device memory does not arrive.
void lose(int message);

} // namespace library_double
