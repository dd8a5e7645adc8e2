// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Arrays in the memory of CUDA devices.
#include "device.hpp"

#ifdef SPAR_PYTHON_CUDA
#include "cuda_runtime.hpp"
#include "errors.hpp"

#include <spar/cuda/recycled.hpp>
#include <spar/spar.h>
#ifdef SPAR_PYTHON_KERNELS
#include <spar/spar_cuda.h>
#endif

#include <nanobind/nanobind.h>

#include <map>
#include <utility>

namespace spar_python {

namespace {

using spar::detail::check_cuda, spar::detail::pinned_memory;

/// Calls `f()`, which calls CUDA.
template <class F>
auto or_raise(F f) {
  try {
    return f();
  } catch (const spar::cuda_error& e) {
    raise(SPAR_ERR_TRANSPORT, e.what());
  }
}

cudaPointerAttributes place_of(const void* data) {
  cudaPointerAttributes where{};
  check_cuda(cudaPointerGetAttributes(&where, data), "cudaPointerGetAttributes");
  return where;
}

/// The buffers of a device, whose events order its streams. Never freed: at the end of the process, CUDA may be gone.
pinned_memory& buffers_of(int device) {
  static auto& all = *new std::map<int, pinned_memory>;
  return all[device];
}

} // namespace

device_scope::device_scope(const device_values& of) {
  or_raise([&] {
    check_cuda(cudaGetDevice(&before_), "cudaGetDevice");
    check_cuda(cudaSetDevice(place_of(of.data).device), "cudaSetDevice");
  });
}
device_scope::~device_scope() { cudaSetDevice(before_); }

struct device_copy::content {
  explicit content(const device_values& of) : values(of), stream(reinterpret_cast<cudaStream_t>(of.stream)) {
    const device_scope current(values);
    host = buffers_of(place_of(values.data).device).take(values.bytes);
    check_cuda(cudaMemcpyAsync(host.data(), values.data, values.bytes, cudaMemcpyDeviceToHost, stream),
               "cudaMemcpyAsync to the host");
    host.used_by(stream);
    const nanobind::gil_scoped_release released;
    check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }

  device_values values;
  cudaStream_t stream;
  pinned_memory::lease host;
};

device_copy::device_copy(std::unique_ptr<content> of) noexcept : content_(std::move(of)) {}
device_copy::~device_copy() = default;

std::unique_ptr<device_copy> device_copy::of(const device_values& values) {
  if (why_no_cuda_runtime() != nullptr) return nullptr;
  return or_raise([&] { return std::unique_ptr<device_copy>(new device_copy(std::make_unique<content>(values))); });
}
const char* device_copy::why_none() { return why_no_cuda_runtime(); }

void* device_copy::data() const noexcept { return content_->host.data(); }

void device_copy::copy_back() {
  or_raise([&] {
    content& c = *content_;
    const device_scope current(c.values);
    check_cuda(cudaMemcpyAsync(c.values.data, c.host.data(), c.values.bytes, cudaMemcpyHostToDevice, c.stream),
               "cudaMemcpyAsync to the device");
    c.host.used_by(c.stream);
  });
}

#ifdef SPAR_PYTHON_KERNELS
bool device_calls::can(const device_values& x, int type, spar_op op, const char* algorithm) {
  return why_no_cuda_runtime() == nullptr && spar_device_check(type, op, algorithm) == SPAR_SUCCESS &&
         or_raise([&] { return place_of(x.data).type; }) == cudaMemoryTypeDevice;
}
int device_calls::start_allreduce(spar_comm comm, const device_values& x, std::int64_t n, int type, spar_op op,
                                  const char* algorithm, spar_request* request) {
  return spar_start_device_allreduce(comm, x.data, n, type, op, algorithm, reinterpret_cast<void*>(x.stream), request);
}
int device_calls::start_feedback_reduce(spar_feedback feedback, spar_comm comm, const device_values& x, std::int64_t n,
                                        spar_op op, spar_request* request) {
  return spar_start_device_feedback_reduce(feedback, comm, x.data, n, op, reinterpret_cast<void*>(x.stream), request);
}
#endif

} // namespace spar_python

#else

namespace spar_python {

struct device_copy::content {};

device_scope::device_scope(const device_values&) {}
device_scope::~device_scope() = default;
device_copy::~device_copy() = default;
std::unique_ptr<device_copy> device_copy::of(const device_values&) { return nullptr; }
const char* device_copy::why_none() { return "this spar was built without the headers of CUDA"; }
void* device_copy::data() const noexcept { return nullptr; }
void device_copy::copy_back() {}

} // namespace spar_python

#endif

#ifndef SPAR_PYTHON_KERNELS

namespace spar_python {

bool device_calls::can(const device_values&, int, spar_op, const char*) { return false; }
int device_calls::start_allreduce(spar_comm, const device_values&, std::int64_t, int, spar_op, const char*,
                                  spar_request*) {
  return SPAR_ERR_OTHER;
}
int device_calls::start_feedback_reduce(spar_feedback, spar_comm, const device_values&, std::int64_t, spar_op,
                                        spar_request*) {
  return SPAR_ERR_OTHER;
}

} // namespace spar_python

#endif
