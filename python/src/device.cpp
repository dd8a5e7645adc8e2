// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Arrays in the memory of CUDA devices.
#include "device.hpp"

#ifdef SPAR_PYTHON_CUDA
#include "cuda_runtime.hpp"
#include "errors.hpp"

#include <spar/cuda/recycled.hpp>
#include <spar/spar.h>

#include <nanobind/nanobind.h>

#include <map>
#include <utility>

namespace spar_python {

namespace {

using spar::detail::check_cuda, spar::detail::pinned_memory;

/// Makes a device the current one until the end of the scope.
class on_device {
 public:
  explicit on_device(int device) {
    check_cuda(cudaGetDevice(&before_), "cudaGetDevice");
    check_cuda(cudaSetDevice(device), "cudaSetDevice");
  }
  on_device(const on_device&) = delete;
  ~on_device() { cudaSetDevice(before_); }

 private:
  int before_ = 0;
};

/// Calls `f()`, which calls CUDA.
template <class F>
auto or_raise(F f) {
  try {
    return f();
  } catch (const spar::cuda_error& e) {
    raise(SPAR_ERR_TRANSPORT, e.what());
  }
}

int device_of(const void* data) {
  cudaPointerAttributes where{};
  check_cuda(cudaPointerGetAttributes(&where, data), "cudaPointerGetAttributes");
  return where.device;
}

/// The buffers of a device, whose events order its streams. Never freed: at the end of the process, CUDA may be gone.
pinned_memory& buffers_of(int device) {
  static auto& all = *new std::map<int, pinned_memory>;
  return all[device];
}

} // namespace

struct device_copy::content {
  content(void* data, std::size_t count, cudaStream_t order)
      : values(data), bytes(count), stream(order), device(device_of(data)) {
    const on_device here(device);
    host = buffers_of(device).take(bytes);
    check_cuda(cudaMemcpyAsync(host.data(), values, bytes, cudaMemcpyDeviceToHost, stream),
               "cudaMemcpyAsync to the host");
    host.used_by(stream);
    const nanobind::gil_scoped_release released;
    check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }

  void* values;
  std::size_t bytes;
  cudaStream_t stream;
  int device;
  pinned_memory::lease host;
};

device_copy::device_copy(std::unique_ptr<content> of) noexcept : content_(std::move(of)) {}
device_copy::~device_copy() = default;

std::unique_ptr<device_copy> device_copy::of(void* data, std::size_t bytes, std::uintptr_t stream) {
  if (why_no_cuda_runtime() != nullptr) return nullptr;
  return or_raise([&] {
    auto copied = std::make_unique<content>(data, bytes, reinterpret_cast<cudaStream_t>(stream));
    return std::unique_ptr<device_copy>(new device_copy(std::move(copied)));
  });
}
const char* device_copy::why_none() { return why_no_cuda_runtime(); }

void* device_copy::data() const noexcept { return content_->host.data(); }

void device_copy::copy_back() {
  or_raise([&] {
    content& c = *content_;
    const on_device here(c.device);
    check_cuda(cudaMemcpyAsync(c.values, c.host.data(), c.bytes, cudaMemcpyHostToDevice, c.stream),
               "cudaMemcpyAsync to the device");
    c.host.used_by(c.stream);
  });
}

} // namespace spar_python

#else

namespace spar_python {

struct device_copy::content {};

device_copy::~device_copy() = default;
std::unique_ptr<device_copy> device_copy::of(void*, std::size_t, std::uintptr_t) { return nullptr; }
const char* device_copy::why_none() { return "this spar was built without the headers of CUDA"; }
void* device_copy::data() const noexcept { return nullptr; }
void device_copy::copy_back() {}

} // namespace spar_python

#endif
