// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The functions of the CUDA runtime that a package without kernels calls, each of which calls that of libcudart: the
// package neither links CUDA nor needs it. torch and CuPy have loaded a libcudart before an array of a device exists;
// dlopen then finds that one by its name, if it has the major version of the headers, on which the layout of structures
// depends. A package with kernels links a CUDA runtime of its own, which needs only the driver.
#include "cuda_runtime.hpp"

#include <cuda_runtime_api.h>

#include <dlfcn.h>

#include <string>

namespace spar_python {

namespace {

#ifndef SPAR_PYTHON_KERNELS
void* handle() {
  static void* const library =
      dlopen(("libcudart.so." + std::to_string(CUDART_VERSION / 1000)).c_str(), RTLD_NOW | RTLD_LOCAL);
  return library;
}

/// Calls a function of the runtime, which must be loaded.
template <class Result, class... Parameters>
Result forward(Result (*)(Parameters...), const char* name, Parameters... arguments) {
  using function = Result (*)(Parameters...);
  return reinterpret_cast<function>(dlsym(handle(), name))(arguments...);
}
#endif

} // namespace

const char* why_no_cuda_runtime() {
  static const std::string why = [] {
#ifndef SPAR_PYTHON_KERNELS
    if (handle() == nullptr) return std::string(dlerror());
#endif
    int devices = 0;
    const cudaError_t code = cudaGetDeviceCount(&devices);
    if (code != cudaSuccess) return "cudaGetDeviceCount failed: " + std::string(cudaGetErrorString(code));
    return std::string(devices == 0 ? "there is no CUDA device" : "");
  }();
  return why.empty() ? nullptr : why.c_str();
}

} // namespace spar_python

#ifndef SPAR_PYTHON_KERNELS
using spar_python::forward;

extern "C" {
cudaError_t cudaGetLastError() { return forward(&cudaGetLastError, "cudaGetLastError"); }
const char* cudaGetErrorName(cudaError_t code) { return forward(&cudaGetErrorName, "cudaGetErrorName", code); }
const char* cudaGetErrorString(cudaError_t code) { return forward(&cudaGetErrorString, "cudaGetErrorString", code); }
cudaError_t cudaGetDeviceCount(int* devices) { return forward(&cudaGetDeviceCount, "cudaGetDeviceCount", devices); }
cudaError_t cudaGetDevice(int* device) { return forward(&cudaGetDevice, "cudaGetDevice", device); }
cudaError_t cudaSetDevice(int device) { return forward(&cudaSetDevice, "cudaSetDevice", device); }
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* where, const void* data) {
  return forward(&cudaPointerGetAttributes, "cudaPointerGetAttributes", where, data);
}
cudaError_t cudaMallocHost(void** data, size_t bytes) {
  return forward(&cudaMallocHost, "cudaMallocHost", data, bytes);
}
cudaError_t cudaFreeHost(void* data) { return forward(&cudaFreeHost, "cudaFreeHost", data); }
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return forward(&cudaMemcpyAsync, "cudaMemcpyAsync", to, from, bytes, kind, stream);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return forward(&cudaStreamSynchronize, "cudaStreamSynchronize", stream);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return forward(&cudaEventCreateWithFlags, "cudaEventCreateWithFlags", event, flags);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { return forward(&cudaEventDestroy, "cudaEventDestroy", event); }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return forward(&cudaEventRecord, "cudaEventRecord", event, stream);
}
cudaError_t cudaEventQuery(cudaEvent_t event) { return forward(&cudaEventQuery, "cudaEventQuery", event); }
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return forward(&cudaEventSynchronize, "cudaEventSynchronize", event);
}
}
#endif
