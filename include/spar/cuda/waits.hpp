// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The waits of a rank's coroutines for the work in a stream of its device.
#pragma once

#include <spar/core/memory/link.hpp>
#include <spar/core/memory/slab.hpp>
#include <spar/cuda/runtime.hpp>
#include <spar/runtime/tasks/scheduler.hpp>

#include <coroutine>
#include <exception>

namespace spar::inline v0_1::detail {

/// Resumes coroutines when the work that they wait for, in one stream for all, has ended. The scheduler of the rank
/// polls the events, so that meanwhile the rank goes on with its other calls, whichever of them the program waits for.
class device_waits {
  struct mark {
    cuda_event reached;
    mark* next = nullptr;
  };

 public:
  /// How a thread waits outside of a call, where nothing would resume a coroutine: it calls `make(self)` until the work
  /// has ended.
  struct progress {
    void (*make)(void* self);
    void* self;
  };

  explicit device_waits(spar::scheduler& ready, const progress& outside_of_calls = {nullptr, nullptr}) noexcept
      : ready_(&ready), progress_(outside_of_calls),
        polled_([](void* self) { static_cast<device_waits*>(self)->poll(); }, this) {}
  device_waits(const device_waits&) = delete;

  [[nodiscard]] spar::scheduler& scheduler() const noexcept { return *ready_; }

  /// An awaiter that is ready once the work has ended that is in `stream` when the coroutine awaits it. Throws
  /// `cuda_error` if the work has failed. Construct it after the memory to which the work writes, and before the work
  /// starts: if the coroutine ends or is destroyed earlier than the work, the destructor waits for the work.
  class [[nodiscard]] wait : private link {
   public:
    wait(device_waits& at, cudaStream_t stream) : at_(&at), stream_(stream), mark_(at.marks_.acquire()) {}
    wait(const wait&) = delete;
    ~wait() {
      leave();
      at_->stop_unless_needed();
      if (!ended_) end_work();
      at_->marks_.recycle(mark_);
    }
    [[nodiscard]] bool await_ready() {
      mark_->reached.record(stream_);
      recorded_ = true;
      ended_ = mark_->reached.complete();
      while (!ended_ && at_->progress_.make != nullptr) {
        at_->progress_.make(at_->progress_.self);
        ended_ = mark_->reached.complete();
      }
      return ended_;
    }
    void await_suspend(std::coroutine_handle<> waiting) noexcept {
      waiting_ = waiting;
      if (!at_->any()) at_->ready_->add(at_->polled_);
      join_before(at_->waiting_);
    }
    void await_resume() const {
      if (error_) std::rethrow_exception(error_);
    }

   private:
    friend device_waits;

    void end_work() const noexcept {
      if (recorded_)
        mark_->reached.wait();
      else if (cudaStreamSynchronize(stream_) != cudaSuccess)
        cudaGetLastError(); // so that no later check finds the error
    }

    /// Whether the coroutine can be resumed.
    [[nodiscard]] bool is_over() noexcept {
      try {
        return ended_ = mark_->reached.complete();
      } catch (...) {
        error_ = std::current_exception();
        return true;
      }
    }

    device_waits* at_;
    cudaStream_t stream_;
    mark* mark_;
    std::coroutine_handle<> waiting_;
    std::exception_ptr error_;
    bool recorded_ = false;
    bool ended_ = false;
  };

 private:
  [[nodiscard]] bool any() const noexcept { return &waiting_.after() != &waiting_; }
  void stop_unless_needed() noexcept {
    if (!any()) polled_.leave();
  }
  /// A later wait ends later, because all waits are for the same stream.
  void poll() {
    while (any()) {
      auto& first = static_cast<wait&>(waiting_.after());
      if (!first.is_over()) return;
      first.leave();
      ready_->post(first.waiting_);
    }
    polled_.leave();
  }

  spar::scheduler* ready_;
  progress progress_;
  polled_work polled_;
  link waiting_;
  slab<mark> marks_;
};

} // namespace spar::inline v0_1::detail
