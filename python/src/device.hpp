// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Arrays in the memory of CUDA devices, which kernels reduce there, if the package was built with kernels, or which a
// call has in page-locked host memory, as spar::staged does.
#pragma once

#include <spar/spar.h>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace spar_python {

/// Values in device memory, and the cudaStream_t that orders the work on them.
struct device_values {
  void* data;
  std::size_t bytes;
  std::uintptr_t stream;
};

/// Calls on values in device memory by kernels.
struct device_calls {
  /// Whether there are kernels for the values `x` of `type`: not for managed memory, which UCX may take for memory of a
  /// device. Needs the GIL, and raises TransportError if CUDA fails.
  static bool can(const device_values& x, int type, spar_op op, const char* algorithm);
  // As the functions of <spar/spar_cuda.h> of these names, only if `can` has returned true.
  static int start_allreduce(spar_comm comm, const device_values& x, std::int64_t n, int type, spar_op op,
                             const char* algorithm, spar_request* request);
  static int start_feedback_reduce(spar_feedback feedback, spar_comm comm, const device_values& x, std::int64_t n,
                                   spar_op op, spar_request* request);
};

/// Makes the device of values the current one until the end of the scope. Raises TransportError if CUDA fails.
class device_scope {
 public:
  explicit device_scope(const device_values& of);
  device_scope(const device_scope&) = delete;
  ~device_scope();

 private:
  [[maybe_unused]] int before_ = 0; // unused without CUDA
};

/// A copy in page-locked host memory of `bytes` bytes of device memory. All functions need the GIL, and raise
/// TransportError with the name and error of a call of CUDA that fails.
class device_copy {
 public:
  /// Null if libcudart cannot be loaded or finds no device, or if this package was compiled without CUDA's headers:
  /// `why_none()`. Copies the values after the work that is in their stream, and waits for the copy without the GIL.
  static std::unique_ptr<device_copy> of(const device_values& values);
  static const char* why_none();

  device_copy(const device_copy&) = delete;
  ~device_copy();

  [[nodiscard]] void* data() const noexcept;
  /// Starts to copy the values back. Work that is put into the stream afterwards sees them.
  void copy_back();

 private:
  struct content;
  explicit device_copy(std::unique_ptr<content> of) noexcept;

  std::unique_ptr<content> content_;
};

} // namespace spar_python
