// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Random choices and delays of tests in random schedules.
#pragma once

#include <chrono>
#include <cstdint>
#include <random>
#include <thread>

#include <sched.h>

namespace over_nccl {

using random_source = std::mt19937_64;

inline std::uint64_t up_to(random_source& random, std::uint64_t most) { return random() % (most + 1); }

/// A random time: none, some turns of other threads, or up to 200 microseconds.
inline void be_late(random_source& random) {
  const std::uint64_t how_late = random() % 8;
  if (how_late == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
  if (how_late < 4) {
    for (std::uint64_t turns = up_to(random, 20); turns > 0; --turns) sched_yield();
  }
}

} // namespace over_nccl
