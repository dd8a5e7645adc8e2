// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Wrappers of POSIX threads and condition variables. spar does not use <thread>, <condition_variable> or <chrono>,
// because they include the standard streams, which would lengthen the compile time of every program.
#pragma once

#include <spar/core/error.hpp>

#include <cstring>
#include <mutex>
#include <utility>

#include <pthread.h>
#include <sched.h>
#include <time.h>

namespace spar::inline v0_1::detail {

/// Converts seconds, which must not be negative, to a POSIX timespec.
inline timespec timespec_of(double seconds) noexcept {
  const auto whole = static_cast<time_t>(seconds);
  return {whole, static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
}

/// Seconds of the monotonic clock, which starts at an arbitrary time.
inline double monotonic_seconds() noexcept {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Suspends the calling thread for `seconds`.
inline void rest(double seconds) noexcept {
  const timespec time = timespec_of(seconds);
  nanosleep(&time, nullptr);
}

/// Tells the processor that this thread repeats a check until another thread acts.
inline void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// The number of processors on which this process may run.
inline int processors() noexcept {
  cpu_set_t usable;
  return sched_getaffinity(0, sizeof(usable), &usable) == 0 ? CPU_COUNT(&usable) : 1;
}

/// A POSIX thread. The owner must call `join` before destroying a `thread` object that has started a thread.
class thread {
 public:
  thread() = default;
  /// Starts a thread that calls `program()`, which must not throw. Throws `error` if the thread cannot be started.
  template <class Program>
  explicit thread(Program program) {
    auto* const own = new Program(std::move(program));
    const auto run = [](void* argument) -> void* {
      auto* const mine = static_cast<Program*>(argument);
      (*mine)();
      delete mine;
      return nullptr;
    };
    if (const int code = pthread_create(&id_, nullptr, run, own); code != 0) {
      delete own;
      raise<error>({"cannot start a thread: ", std::strerror(code)});
    }
  }
  thread(thread&&) = default;
  thread& operator=(thread&&) = default;

  void join() noexcept { pthread_join(id_, nullptr); }

 private:
  pthread_t id_{};
};

/// A condition variable that measures time by the monotonic clock.
class signal {
 public:
  signal() noexcept {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&condition_, &attributes);
    pthread_condattr_destroy(&attributes);
  }
  signal(const signal&) = delete;
  ~signal() { pthread_cond_destroy(&condition_); }

  void notify_all() noexcept { pthread_cond_broadcast(&condition_); }

  /// Unlocks the mutex `held`, waits, and locks the mutex again. The wait ends after `notify_all`, when the monotonic
  /// clock reaches `until` (in seconds), or spuriously.
  void wait(std::mutex& held, double until) noexcept {
    const timespec time = timespec_of(until);
    pthread_cond_timedwait(&condition_, held.native_handle(), &time);
  }

 private:
  pthread_cond_t condition_;
};

} // namespace spar::inline v0_1::detail
