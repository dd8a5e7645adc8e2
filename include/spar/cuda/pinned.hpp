// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Page-locked host memory, which a device copies asynchronously and at full speed.
#pragma once

#include <spar/cuda/runtime.hpp>

#include <cstddef>
#include <memory>
#include <vector>

namespace spar::detail {

/// Recycles page-locked buffers, because CUDA takes milliseconds to make one. A buffer is used again once the last copy
/// from it has ended. For one thread at a time.
class pinned_memory {
  struct buffer {
    explicit buffer(std::size_t size) : bytes(size) { check_cuda(cudaMallocHost(&data, size), "cudaMallocHost"); }
    buffer(const buffer&) = delete;
    ~buffer() {
      last.wait(); // the device may still read the buffer
      cudaFreeHost(data);
    }

    void* data = nullptr;
    std::size_t bytes;
    cuda_event last;
    bool lent = false;
  };

 public:
  /// A buffer that is lent until the end of the scope.
  class lease {
   public:
    explicit lease(buffer& lent) noexcept : buffer_(&lent) { lent.lent = true; }
    lease(const lease&) = delete;
    ~lease() { buffer_->lent = false; }

    [[nodiscard]] void* data() const noexcept { return buffer_->data; }
    /// Notes that the work in `stream` uses the buffer. If CUDA cannot note it, waits for this work, because nothing
    /// else would keep the buffer from being freed, and throws `cuda_error`.
    void used_by(cudaStream_t stream) {
      try {
        buffer_->last.record(stream);
      } catch (const cuda_error&) {
        cudaStreamSynchronize(stream);
        throw;
      }
    }
    [[nodiscard]] bool idle() const { return buffer_->last.complete(); }

   private:
    buffer* buffer_;
  };

  /// Lends a buffer of at least `bytes` bytes: the smallest that is free, otherwise a new one. Throws `cuda_error` if
  /// there is no memory.
  [[nodiscard]] lease take(std::size_t bytes) {
    buffer* best = nullptr;
    for (const auto& b : buffers_) {
      if (b->bytes < bytes || b->lent || !b->last.complete()) continue;
      if (best == nullptr || b->bytes < best->bytes) best = b.get();
    }
    if (best == nullptr) best = buffers_.emplace_back(std::make_unique<buffer>(bytes)).get();
    return lease(*best);
  }
  [[nodiscard]] std::size_t count() const noexcept { return buffers_.size(); }

 private:
  std::vector<std::unique_ptr<buffer>> buffers_;
};

} // namespace spar::detail
