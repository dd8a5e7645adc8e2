// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Threads, and the signal that wakes them.
#include <spar/core/util/parallel.hpp>
#include <spar/core/util/thread.hpp>
#include <spar/runtime/endpoint.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

namespace {

TEST(thread, runs_its_program_until_it_is_joined) {
  int done = 0;
  spar::detail::thread first([&] { done = 1; });
  spar::detail::thread moved = std::move(first);
  moved.join();
  EXPECT_EQ(done, 1);
}

TEST(parallel, does_each_part_once_on_a_thread_of_its_own) {
  for (const int parts : {0, 1, 2, 3, 7, 64}) {
    std::vector<int> done(static_cast<std::size_t>(parts));
    std::vector<pthread_t> by(done.size());
    spar::detail::in_parallel(0, parts, [&](int part) {
      ++done[static_cast<std::size_t>(part)];
      by[static_cast<std::size_t>(part)] = pthread_self();
    });
    EXPECT_EQ(std::ranges::count(done, 1), parts);
    EXPECT_EQ(std::ranges::count(by, pthread_self()), std::min(parts, 1));
  }
}

TEST(parallel, parts_are_equal_and_leave_nothing_out) {
  for (const std::size_t n : {std::size_t{0}, std::size_t{5}, std::size_t{1000}, ~std::size_t{0} / 2}) {
    for (const int parts : {1, 3, 256}) {
      EXPECT_EQ(spar::detail::part_begin(n, 0, parts), 0U);
      EXPECT_EQ(spar::detail::part_begin(n, parts, parts), n);
      for (int part = 0; part < parts; ++part) {
        const auto size = spar::detail::part_begin(n, part + 1, parts) - spar::detail::part_begin(n, part, parts);
        EXPECT_LE(size - n / static_cast<std::size_t>(parts), 1U);
      }
    }
  }
}

TEST(parallel, no_thread_is_started_for_less_work_than_that_takes) {
  EXPECT_EQ(spar::detail::useful_threads(8, 0), 1);
  EXPECT_EQ(spar::detail::useful_threads(8, 65'535), 1);
  EXPECT_EQ(spar::detail::useful_threads(8, 65'536), 2);
  EXPECT_EQ(spar::detail::useful_threads(8, ~std::size_t{0}), 8);
  EXPECT_EQ(spar::detail::useful_threads(1, ~std::size_t{0}), 1);
}

TEST(signal, wakes_who_waits) {
  std::mutex mutex;
  spar::detail::signal signal;
  bool told = false;
  const double begin = spar::endpoint::now();
  std::unique_lock lock(mutex);
  spar::detail::thread other([&] {
    const std::lock_guard mine(mutex); // cannot lock before the wait releases the mutex
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
  EXPECT_LE(waits, 100) << "the thread polls instead of sleeping";
}

TEST(rest, takes_its_time) {
  const double begin = spar::endpoint::now();
  spar::detail::rest(0.02);
  EXPECT_GE(spar::endpoint::now() - begin, 0.02);
}

} // namespace
