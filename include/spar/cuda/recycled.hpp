// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Buffers in page-locked host memory, which a device copies asynchronously and at full speed, and in device memory.
#pragma once

#include <spar/cuda/runtime.hpp>

#include <cstddef>
#include <list>
#include <utility>

namespace spar::inline v0_1::detail {

/// Recycles buffers, because CUDA takes milliseconds to make one. A buffer is used again once the last work on it that
/// the program has noted has ended. For one thread at a time.
class recycled_memory {
  /// The functions of CUDA for one kind of memory.
  struct kind {
    cudaError_t (*allocate)(void** data, std::size_t bytes);
    cudaError_t (*free)(void* data);
    const char* name; // of `allocate`
  };
  struct buffer {
    buffer(const kind& memory, std::size_t size) : bytes(size), free(memory.free) {
      check_cuda(memory.allocate(&data, size), memory.name);
    }
    buffer(const buffer&) = delete;
    ~buffer() {
      last.wait(); // the device may still use the buffer
      free(data);
    }

    void* data = nullptr;
    std::size_t bytes;
    cudaError_t (*free)(void*);
    cuda_event last;
    cudaStream_t reader = nullptr; // of a buffer that is detached for a stream
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
    ~lease() { give_back(buffer_); }

    /// Leaves the buffer in use until the caller passes the returned pointer to `give_back`.
    [[nodiscard]] void* detach() noexcept { return std::exchange(buffer_, nullptr); }
    static void give_back(void* detached) noexcept {
      if (detached != nullptr) static_cast<buffer*>(detached)->in_use = false;
    }
    /// Leaves the buffer in use until the caller passes the returned pointer to `give_back_used`. The work that is in
    /// the stream `reader` then uses the buffer.
    [[nodiscard]] void* detach_for(cudaStream_t reader) noexcept {
      buffer_->reader = reader;
      return detach();
    }
    static void give_back_used(void* detached) noexcept {
      lease used(*static_cast<buffer*>(detached));
      try {
        used.used_by(used.buffer_->reader);
      } catch (const cuda_error&) { // `used_by` has waited
      }
    }

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

  /// Returns a buffer of at least `bytes` bytes: the smallest that is free, otherwise a new one, before whose
  /// allocation it calls `prepare()`. Throws `cuda_error` if there is no memory.
  template <class Prepare>
  [[nodiscard]] lease take(std::size_t bytes, Prepare prepare) {
    lease taken = take_free(bytes);
    if (!taken.empty()) return taken;
    prepare();
    return lease(buffers_.emplace_back(kind_, bytes));
  }
  [[nodiscard]] lease take(std::size_t bytes) {
    return take(bytes, [] {});
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
  /// Frees all buffers, which nobody may use any more.
  void free() noexcept { buffers_.clear(); }

 protected:
  explicit recycled_memory(const kind& of) noexcept : kind_(of) {}

 private:
  kind kind_;
  std::list<buffer> buffers_; // its constructor takes no memory, unlike that of a deque
};

/// Recycles page-locked host memory.
class pinned_memory : public recycled_memory {
 public:
  pinned_memory() noexcept : recycled_memory({cudaMallocHost, cudaFreeHost, "cudaMallocHost"}) {}
};

/// Recycles device memory of the device that is current at each call.
class device_memory : public recycled_memory {
 public:
  device_memory() noexcept : recycled_memory({cudaMalloc, cudaFree, "cudaMalloc"}) {}
};

} // namespace spar::inline v0_1::detail
