// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The scheduler of a rank: a queue of ready coroutines, which one loop resumes one after another.
#pragma once

#include <spar/core/memory/buffer.hpp>
#include <spar/core/memory/link.hpp>
#include <spar/core/memory/pool.hpp>

#include <coroutine>
#include <cstddef>
#include <cstring>
#include <memory_resource>
#include <utility>

namespace spar::inline v0_1 {

namespace detail {

/// Something else than messages for which coroutines of a rank wait, and which only polling completes, such as the work
/// of a device.
class polled_work : public link {
 public:
  /// `look(self)` posts the coroutines whose wait has ended. `self` must outlive this object.
  polled_work(void (*look)(void* self), void* self) noexcept : poll_(look), self_(self) {}
  ~polled_work() { leave(); }
  void poll() const { poll_(self_); }

 private:
  void (*poll_)(void* self);
  void* self_;
};

} // namespace detail

/// The queue of the ready coroutines of one rank. Only `run` resumes coroutines, so that the stack stays flat.
/// Symmetric transfer would not keep the stack flat, because it is not a tail call without optimisation or under a
/// sanitizer. Only one thread at a time may use a scheduler.
class scheduler {
 public:
  /// A scheduler of the rank whose pool is `memory`.
  explicit scheduler(pool& memory) : memory_(&memory) {}
  scheduler(const scheduler&) = delete;

  /// The rank's pool, from which coroutines take their frames.
  [[nodiscard]] pool& memory() const noexcept { return *memory_; }

  /// Makes room in the queue for one more coroutine, which is about to start: `join` and `leave` count it. Therefore
  /// `post` needs no memory. Throws std::bad_alloc if there is no memory.
  void make_room() {
    if (tasks_ >= room_) grow();
  }
  /// Notes that a coroutine has started, for which `make_room` has made room.
  void join() noexcept { ++tasks_; }
  /// Notes that a coroutine has ended.
  void leave() noexcept { --tasks_; }

  /// Appends the suspended coroutine `ready` to the queue. Takes no memory for a spar::task; coroutines of other types
  /// may need memory if more than `spare` of them are ready.
  void post(std::coroutine_handle<> ready);

  /// Removes the coroutine `gone`, which is about to be destroyed, from the queue.
  void forget(std::coroutine_handle<> gone) noexcept;

  /// From now on, `run` polls `work`, until `work` leaves the ring of polled work.
  void add(detail::polled_work& work) noexcept { work.join_before(polled_); }
  /// Whether a coroutine waits for polled work. If so, a transport must not block, because only `run` ends this wait.
  [[nodiscard]] bool polls() const noexcept { return &polled_.after() != &polled_; }

  /// Polls what has been added, if anything. Then resumes ready coroutines, including those that become ready
  /// meanwhile, until the queue is empty or the scheduler is paused.
  void run();
  /// Whether `run` is resuming a coroutine.
  [[nodiscard]] bool running() const noexcept { return running_; }

  /// Whether there is no coroutine that `run` would resume: none is ready, or the scheduler is paused.
  [[nodiscard]] bool idle() const noexcept { return next_ == end_ || paused_; }

  /// Pauses the scheduler while an object of this class exists: coroutines can become ready, but `run` resumes none.
  /// Used by a coroutine that must wait for another rank without being suspended.
  class pause {
   public:
    /// Pauses the scheduler `paused`.
    explicit pause(scheduler& paused) noexcept : scheduler_(&paused), before_(std::exchange(paused.paused_, true)) {}
    pause(const pause&) = delete;
    ~pause() { scheduler_->paused_ = before_; }

   private:
    scheduler* scheduler_;
    bool before_;
  };

 private:
  void poll() const;
  static std::pmr::memory_resource& heap() { return *std::pmr::new_delete_resource(); }

  [[gnu::cold]] void grow();
  /// Moves the ready coroutines to the beginning of the queue, whose capacity is more than twice their number.
  [[gnu::cold]] void compact();

  static constexpr std::size_t spare = 8; // room for coroutines that are no spar::task

  pool* memory_;
  std::size_t tasks_ = 0;    // coroutines that have started and not ended
  std::size_t room_ = spare; // the number of coroutines for which there is room: half of the queue, but for `spare`
  buffer<std::coroutine_handle<>> queue_{heap(), 32}; // the ready coroutines are in [next_, end_)
  std::size_t next_ = 0;
  std::size_t end_ = 0;
  detail::link polled_;
  bool running_ = false;
  bool paused_ = false;
};

} // namespace spar::inline v0_1

#ifndef SPAR_COMPILED
#include <spar/runtime/tasks/scheduler-inl.hpp>
#endif
