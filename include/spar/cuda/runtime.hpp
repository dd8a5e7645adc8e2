// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Calls, events and streams of the CUDA runtime, with errors as exceptions. Host code: any compiler with the toolkit's
// headers.
#pragma once

#include <spar/core/error.hpp>

#include <cuda_runtime_api.h>

#include <string>

namespace spar::inline v0_1 {

/// A call of the CUDA runtime failed. The message contains the name of the call, and the name and the text of CUDA's
/// error, such as "cudaMalloc failed: cudaErrorMemoryAllocation, out of memory"; on other ranks, the `peer_failed`
/// contains the same.
struct cuda_error : error {
  using error::error;
};

namespace detail {

/// The text of the last error of `check_cuda` on this thread: for destructors that run because of it, and tell other
/// ranks.
inline thread_local std::string last_cuda_error;

/// Throws `cuda_error` unless `code` is cudaSuccess.
inline void check_cuda(cudaError_t code, const char* call) {
  if (code == cudaSuccess) return;
  cudaGetLastError(); // otherwise a later call that asks for the last error would find this one
  last_cuda_error = sentence(call, " failed: ", cudaGetErrorName(code), ", ", cudaGetErrorString(code));
  raise<cuda_error>({last_cuda_error});
}

/// An event without times.
class cuda_event {
 public:
  cuda_event() { check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags"); }
  cuda_event(const cuda_event&) = delete;
  ~cuda_event() { cudaEventDestroy(event_); }

  /// From now on, the event is complete once all work that is now in `stream` has ended.
  void record(cudaStream_t stream) { check_cuda(cudaEventRecord(event_, stream), "cudaEventRecord"); }
  /// Throws `cuda_error` if the work has failed.
  [[nodiscard]] bool complete() const {
    const cudaError_t code = cudaEventQuery(event_);
    if (code == cudaErrorNotReady) {
      cudaGetLastError(); // otherwise a later check of a kernel launch would find this error
      return false;
    }
    check_cuda(code, "cudaEventQuery");
    return true;
  }
  /// Work that is put into `stream` from now on begins after the event.
  void order(cudaStream_t stream) const { check_cuda(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent"); }
  /// Waits, and ignores errors.
  void wait() const noexcept {
    if (cudaEventSynchronize(event_) != cudaSuccess) cudaGetLastError(); // so that no later check finds the error
  }

 private:
  cudaEvent_t event_ = nullptr;
};

/// A stream that waits for no other unless it is told to.
class device_stream {
 public:
  device_stream() {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  }
  device_stream(const device_stream&) = delete;
  ~device_stream() {
    wait();
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
  /// Waits for the work in this stream, and ignores its errors.
  void wait() const noexcept {
    if (cudaStreamSynchronize(stream_) != cudaSuccess) cudaGetLastError(); // so that no later check finds the error
  }

 private:
  cudaStream_t stream_ = nullptr;
  cuda_event here_;
};

} // namespace detail

} // namespace spar::inline v0_1
