// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ends a test program that hangs, and prints where.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace spar_test {

class watchdog {
 public:
  /// Ends the program if for `seconds` seconds neither `watch` is called nor the watchdog destroyed.
  explicit watchdog(int seconds) : thread_([this, seconds] { look(std::chrono::seconds(seconds)); }) {}
  watchdog(const watchdog&) = delete;
  ~watchdog() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    signal_.notify_one();
    thread_.join();
  }

  void watch(std::string what) {
    {
      const std::lock_guard lock(mutex_);
      what_ = std::move(what);
      news_ = true;
    }
    signal_.notify_one();
  }

 private:
  void look(std::chrono::seconds time) {
    std::unique_lock lock(mutex_);
    while (!over_) {
      news_ = false;
      if (signal_.wait_for(lock, time, [&] { return news_ || over_; })) continue;
      std::fprintf(stderr, "hangs: %s\n", what_.c_str());
      std::_Exit(1);
    }
  }

  std::mutex mutex_;
  std::condition_variable signal_;
  bool over_ = false;
  bool news_ = false;
  std::string what_ = "the beginning";
  std::thread thread_; // last member: the thread uses the others
};

} // namespace spar_test
