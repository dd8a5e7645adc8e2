// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Counts what ranks ask of the CUDA runtime: include this header in one source of a program, and link the program with
// --wrap for each function of `spar_perf_device_calls` in sources.cmake.
#pragma once

#include "device_memory.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <set>

namespace spar::perf::detail {

/// Events that the host has recorded and not asked for since.
inline thread_local std::set<cudaEvent_t> recorded_events;
inline const bool counting = counts_device_calls = true;

} // namespace spar::perf::detail

extern "C" {
cudaError_t __real_cudaLaunchKernelExC(const cudaLaunchConfig_t*, const void*, void**);
cudaError_t __real_cudaLaunchKernel(const void*, dim3, dim3, void**, size_t, cudaStream_t);
#if CUDART_VERSION >= 13000
cudaError_t __real___cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t);
#endif
cudaError_t __real_cudaGraphLaunch(cudaGraphExec_t, cudaStream_t);
cudaError_t __real_cudaEventRecord(cudaEvent_t, cudaStream_t);
cudaError_t __real_cudaEventQuery(cudaEvent_t);
cudaError_t __real_cudaEventSynchronize(cudaEvent_t);
cudaError_t __real_cudaStreamSynchronize(cudaStream_t);

cudaError_t __wrap_cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void** arguments) {
  ++spar::perf::calls_of_device.launches;
  return __real_cudaLaunchKernelExC(config, kernel, arguments);
}
cudaError_t __wrap_cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, size_t bytes,
                                    cudaStream_t stream) {
  ++spar::perf::calls_of_device.launches;
  return __real_cudaLaunchKernel(kernel, grid, block, arguments, bytes, stream);
}
#if CUDART_VERSION >= 13000 // what nvcc makes of <<<>>>
cudaError_t __wrap___cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t bytes,
                                      cudaStream_t stream) {
  ++spar::perf::calls_of_device.launches;
  return __real___cudaLaunchKernel(kernel, grid, block, arguments, bytes, stream);
}
#endif
cudaError_t __wrap_cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  ++spar::perf::calls_of_device.graph_launches;
  return __real_cudaGraphLaunch(graph, stream);
}
cudaError_t __wrap_cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  spar::perf::detail::recorded_events.insert(event);
  return __real_cudaEventRecord(event, stream);
}
// Any number of polls of one record are one wait.
cudaError_t __wrap_cudaEventQuery(cudaEvent_t event) {
  spar::perf::calls_of_device.waits += spar::perf::detail::recorded_events.erase(event);
  return __real_cudaEventQuery(event);
}
cudaError_t __wrap_cudaEventSynchronize(cudaEvent_t event) {
  spar::perf::calls_of_device.waits += spar::perf::detail::recorded_events.erase(event);
  return __real_cudaEventSynchronize(event);
}
cudaError_t __wrap_cudaStreamSynchronize(cudaStream_t stream) {
  ++spar::perf::calls_of_device.waits;
  return __real_cudaStreamSynchronize(stream);
}
}
