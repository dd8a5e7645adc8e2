// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The table of handles, used by several threads.
#include "../../src/c/handles.hpp"

#include <spar/core/error.hpp>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace spar::c;

namespace {

/// Is called before each large allocation of this thread, such as those of the table of handles.
thread_local std::function<void()> when_large;

struct counted final : object {
  explicit counted(std::atomic<int>& ends) : ends_(ends) {}
  ~counted() override { ++ends_; }
  std::atomic<int>& ends_;
};

template <class F>
void in_threads(int threads, const F& f) {
  std::vector<std::thread> all;
  for (int t = 0; t < threads; ++t) all.emplace_back(f);
  for (std::thread& thread : all) thread.join();
}

/// Removes `handle`, and returns whether this call has removed the object; otherwise, the sentence says why not.
bool removes(std::uintptr_t handle) {
  try {
    EXPECT_NE(remove_handle(kind::stream, handle, "stream"), nullptr);
    return true;
  } catch (const spar::invalid_argument& e) {
    EXPECT_NE(std::string(e.what()).find("'stream' is"), std::string::npos) << e.what();
    return false;
  }
}

} // namespace

void* operator new[](std::size_t bytes) {
  if (bytes > 4096 && when_large != nullptr) std::exchange(when_large, nullptr)();
  return ::operator new(bytes);
}
void operator delete[](void* p) noexcept { ::operator delete(p); }
void operator delete[](void* p, std::size_t) noexcept { ::operator delete(p); }

// Two threads find the handle in the table, and wait for its lock, which a third thread holds while the table grows:
// one of the two gets the object.
TEST(handles_of_c, freed_by_two_threads_at_once) {
  std::atomic<int> ends = 0, removed = 0, freeing = 0;
  std::atomic<bool> grows = false;
  const std::uintptr_t handle = add_handle(kind::stream, std::make_shared<counted>(ends));
  std::thread third([&] {
    when_large = [&] {
      grows = true;
      while (freeing < 2) std::this_thread::yield();
      for (int i = 0; i < 1000; ++i) std::this_thread::yield();
    };
    std::vector<std::uintptr_t> others;
    while (!grows) others.push_back(add_handle(kind::stream, std::make_shared<counted>(ends)));
    for (const std::uintptr_t other : others) EXPECT_TRUE(removes(other));
    ends -= static_cast<int>(others.size());
  });
  while (!grows) std::this_thread::yield();
  in_threads(2, [&] {
    ++freeing;
    if (removes(handle)) ++removed;
  });
  third.join();
  EXPECT_EQ(removed, 1);
  EXPECT_EQ(ends, 1);
  // The slot is free once: each later object has a slot of its own.
  std::vector<std::uintptr_t> later(500);
  for (std::uintptr_t& each : later) each = add_handle(kind::stream, std::make_shared<counted>(ends));
  for (const std::uintptr_t each : later) EXPECT_TRUE(removes(each));
}

// Threads add and free handles of their own while the table grows.
TEST(handles_of_c, added_by_threads_at_once) {
  constexpr int threads = 4, rounds = 50, held = 20;
  std::atomic<int> ends = 0;
  in_threads(threads, [&] {
    for (int round = 0; round < rounds; ++round) {
      std::array<std::uintptr_t, held> all{};
      for (std::uintptr_t& handle : all) handle = add_handle(kind::stream, std::make_shared<counted>(ends));
      for (const std::uintptr_t handle : all) {
        EXPECT_NE(object_of(kind::stream, handle, "stream"), nullptr);
        EXPECT_TRUE(removes(handle));
        EXPECT_FALSE(removes(handle));
      }
    }
  });
  EXPECT_EQ(ends, threads * rounds * held);
}
