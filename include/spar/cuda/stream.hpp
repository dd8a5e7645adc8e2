// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A stream of a device, whose work is ordered among that of other streams.
#pragma once

#include <spar/cuda/runtime.hpp>

namespace spar::detail {

/// A stream that waits for no other unless it is told to.
class device_stream {
 public:
  device_stream() {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  }
  device_stream(const device_stream&) = delete;
  ~device_stream() {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }
  [[nodiscard]] cudaStream_t get() const noexcept { return stream_; }

  /// Work that is put into this stream from now on begins after the work that is now in `other`.
  void follow(cudaStream_t other) {
    here_.record(other);
    here_.order(stream_);
  }
  /// Work that is put into `other` from now on begins after the work that is now in this stream.
  void precede(cudaStream_t other) {
    here_.record(stream_);
    here_.order(other);
  }

 private:
  cudaStream_t stream_ = nullptr;
  cuda_event here_;
};

} // namespace spar::detail
