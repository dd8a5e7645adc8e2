// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Controls of the double of a library between processes that takes device memory: MPI (mpi_double.cpp) or UCX
// (ucx_double.cpp).
#pragma once

#include <cstddef>
#include <cstdint>

namespace library_double {

/// Whether the library says that it takes pointers to device memory.
inline bool takes_device_memory = true;
/// The number of messages that this rank has sent from, and received in, device memory.
inline int sent = 0, received = 0;

/// What happens to a message that this rank receives in device memory.
struct fate {
  std::size_t damaged = SIZE_MAX; // the byte of which the highest bit is flipped; the last one if there are fewer
  bool lost = false;              // whether the message does not arrive
};
/// The number of receives in device memory that this rank has started, and the one that has the fate `planned`.
inline int receives = 0, planned_receive = 0;
inline fate planned;

/// Counts a receive in device memory that starts, and returns its fate.
inline fate next_receive() { return ++receives == planned_receive ? planned : fate(); }
/// The message with this number, from 1, of those that this rank starts to receive in device memory from now on arrives
/// with a flipped bit: the highest one of the byte `at`, or of its last byte if there are fewer.
inline void damage(int message, std::size_t at) {
  planned_receive = receives + message;
  planned = {.damaged = at};
}
/// The message with this number, as above, does not arrive.
inline void lose(int message) {
  planned_receive = receives + message;
  planned = {.lost = true};
}

} // namespace library_double
