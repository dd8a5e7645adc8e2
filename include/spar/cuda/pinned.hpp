// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Page-locked host memory, which a device copies asynchronously and at full speed.
#pragma once

#include <spar/cuda/runtime.hpp>

#include <cstddef>
#include <deque>
#include <utility>

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
    bool in_use = false;
  };

 public:
  /// A buffer that no other call uses while the lease exists. An empty lease has no buffer.
  class lease {
   public:
    lease() = default;
    explicit lease(buffer& taken) noexcept : buffer_(&taken) { taken.in_use = true; }
    lease(lease&& other) noexcept : buffer_(std::exchange(other.buffer_, nullptr)) {}
    lease& operator=(lease&& other) noexcept {
      std::swap(buffer_, other.buffer_);
      return *this;
    }
    ~lease() {
      if (buffer_ != nullptr) give_back(buffer_);
    }

    /// Leaves the buffer in use until the caller passes the returned pointer to `give_back`.
    [[nodiscard]] void* detach() noexcept { return std::exchange(buffer_, nullptr); }
    static void give_back(void* detached) noexcept { static_cast<buffer*>(detached)->in_use = false; }

    [[nodiscard]] bool empty() const noexcept { return buffer_ == nullptr; }
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
    buffer* buffer_ = nullptr;
  };

  /// Returns a buffer of at least `bytes` bytes: the smallest that is free, otherwise a new one. Throws `cuda_error` if
  /// there is no memory.
  [[nodiscard]] lease take(std::size_t bytes) {
    lease taken = take_free(bytes);
    return taken.empty() ? lease(buffers_.emplace_back(bytes)) : std::move(taken);
  }
  /// Returns the smallest free buffer of at least `bytes` bytes, or an empty lease if there is none.
  [[nodiscard]] lease take_free(std::size_t bytes) {
    buffer* best = nullptr;
    for (buffer& b : buffers_) {
      if (b.bytes < bytes || b.in_use || !b.last.complete()) continue;
      if (best == nullptr || b.bytes < best->bytes) best = &b;
    }
    return best == nullptr ? lease() : lease(*best);
  }
  [[nodiscard]] std::size_t count() const noexcept { return buffers_.size(); }

 private:
  std::deque<buffer> buffers_;
};

} // namespace spar::detail
