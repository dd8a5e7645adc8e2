// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The C interface of spar for values in the memory of CUDA devices, which kernels reduce there. Experimental. Link
// libspar-cuda as well as libspar.
//
// - The values are in memory of the device that is current when the call starts. They are not managed memory, which UCX
//   may take for memory of a device. `stream` is a cudaStream_t of this device, or NULL for the default stream. A call
//   reads the values after all work that was in `stream` when the call started; work that is put into `stream` after
//   the call has ended sees the result.
// - Over threads, all ranks of a call have their values in device memory. If a rank makes its first call on another
//   device, the others do so in the same call. Over MPI and UCX, ranks with values in host memory may take part in the
//   same call, by the function of <spar/spar.h>: the results have the same bits, except those of NaN.
// - A started call advances in spar_test, spar_wait_for and spar_wait.
// - Errors beside those of the functions of <spar/spar.h>: SPAR_ERR_INVALID_ARGUMENT, before anything is sent, if there
//   are no kernels (`spar_device_check`), if the error feedback has 64-bit indices, if the values or the stream are not
//   those of the current device, or if the communicator has a progress thread; SPAR_ERR_TRANSPORT on this rank, and
//   SPAR_ERR_PEER_FAILED on the others, if CUDA fails.
#pragma once

#include <spar/spar.h>

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Returns SPAR_SUCCESS if the library has kernels for values of `type`, the operation `op` and the composition
/// `algorithm`, and otherwise SPAR_ERR_INVALID_ARGUMENT with a text that says what is missing. Needs no device.
int spar_device_check(int type, spar_op op, const char* algorithm);

/// Reduces `n` values in device memory in place. A communicator keeps the streams and the memory that its calls on a
/// device need until it is freed.
int spar_device_allreduce(spar_comm comm, void* values, int64_t n, int type, spar_op op, const char* algorithm,
                          void* stream);
int spar_start_device_allreduce(spar_comm comm, void* values, int64_t n, int type, spar_op op, const char* algorithm,
                                void* stream, spar_request* request);

/// Replaces the `n` values in device memory by the sum, as `spar_feedback_reduce` does. The residual moves to the
/// device, and back to host memory if another function of `feedback` needs it there, or if another device is current.
int spar_device_feedback_reduce(spar_feedback feedback, spar_comm comm, void* values, int64_t n, spar_op op,
                                void* stream);
int spar_start_device_feedback_reduce(spar_feedback feedback, spar_comm comm, void* values, int64_t n, spar_op op,
                                      void* stream, spar_request* request);

#ifdef __cplusplus
}
#endif
