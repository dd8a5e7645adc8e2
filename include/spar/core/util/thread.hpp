// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Threads and what wakes them, by POSIX: <thread>, <condition_variable> and <chrono> bring the standard library's
// streams along, which every user would compile.
#pragma once

#include <spar/core/error.hpp>

#include <cstring>
#include <mutex>
#include <utility>

#include <pthread.h>
#include <time.h>

namespace spar::detail {

/// Seconds, not below 0, as POSIX has them.
inline timespec timespec_of(double seconds) noexcept {
  const auto whole = static_cast<time_t>(seconds);
  return {whole, static_cast<long>((seconds - static_cast<double>(whole)) * 1e9)};
}

/// The calling thread rests.
inline void rest(double seconds) noexcept {
  const timespec time = timespec_of(seconds);
  nanosleep(&time, nullptr);
}

/// A thread that must be joined.
class thread {
 public:
  thread() = default;
  /// Runs `program`, which throws nothing. Throws `error` where no more threads are to be had.
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

/// Wakes threads that sleep while they let go of a mutex.
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

  /// Returns when it is notified, at that time of the monotonic clock, or for no reason.
  void wait(std::mutex& held, double until) noexcept {
    const timespec time = timespec_of(until);
    pthread_cond_timedwait(&condition_, held.native_handle(), &time);
  }

 private:
  pthread_cond_t condition_;
};

} // namespace spar::detail
