// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Threads, and the signal that wakes them.
#include <spar/core/endpoint.hpp>
#include <spar/core/thread.hpp>

#include <gtest/gtest.h>

#include <mutex>
#include <utility>

namespace {

TEST(thread, runs_its_program_until_it_is_joined) {
  int done = 0;
  spar::detail::thread first([&] { done = 1; });
  spar::detail::thread moved = std::move(first);
  moved.join();
  EXPECT_EQ(done, 1);
}

TEST(signal, wakes_who_waits) {
  std::mutex mutex;
  spar::detail::signal signal;
  bool told = false;
  const double begin = spar::endpoint::now();
  std::unique_lock lock(mutex);
  spar::detail::thread other([&] {
    const std::lock_guard mine(mutex); // not before the wait
    told = true;
    signal.notify_all();
  });
  while (!told) signal.wait(mutex, begin + 60);
  EXPECT_LT(spar::endpoint::now() - begin, 30);
  lock.unlock();
  other.join();
}

TEST(signal, a_wait_ends_at_its_time_and_hardly_before) {
  std::mutex mutex;
  spar::detail::signal signal;
  const std::lock_guard lock(mutex);
  const double until = spar::endpoint::now() + 0.02;
  int waits = 0;
  for (; spar::endpoint::now() < until; ++waits) signal.wait(mutex, until);
  EXPECT_LT(spar::endpoint::now(), until + 60);
  EXPECT_LE(waits, 100) << "it does not sleep";
}

TEST(rest, takes_its_time) {
  const double begin = spar::endpoint::now();
  spar::detail::rest(0.02);
  EXPECT_GE(spar::endpoint::now() - begin, 0.02);
}

} // namespace
