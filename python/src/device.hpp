// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Arrays in the memory of CUDA devices, which a call has in page-locked host memory, as spar::staged does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace spar_python {

/// A copy in page-locked host memory of `bytes` bytes of device memory. All functions need the GIL, and raise
/// TransportError with the name and error of a call of CUDA that fails.
class device_copy {
 public:
  /// Null if libcudart cannot be loaded or finds no device, or if this package was compiled without CUDA's headers:
  /// `why_none()`. Copies the values after the work that is in `stream`, a cudaStream_t, and waits for the copy without
  /// the GIL. `data` must be in the memory of a device.
  static std::unique_ptr<device_copy> of(void* data, std::size_t bytes, std::uintptr_t stream);
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
