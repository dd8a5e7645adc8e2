// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The queue of the simulator's events returns them in the order of time, tie and schedule, against a search of all.
#include <spar/transport/sim/events.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <tuple>
#include <vector>

namespace {

using queue = spar::detail::sim_events<int, int>;

bool is_before(const queue::event& a, const queue::event& b) {
  return std::tuple(a.time, a.tie, a.serial) < std::tuple(b.time, b.tie, b.serial);
}

TEST(sim_events, come_in_order_however_they_are_scheduled_and_taken) {
  std::mt19937 random(1);
  for (int round = 0; round < 500; ++round) {
    queue events(2, 1);
    std::vector<queue::event> all;
    std::uint64_t scheduled = 0;
    const auto take = [&] {
      const auto first = std::min_element(all.begin(), all.end(), is_before);
      const queue::event taken = events.pop();
      ASSERT_EQ(taken.serial, first->serial);
      ASSERT_EQ(taken.time, first->time);
      all.erase(first);
    };
    for (auto steps = random() % 300; steps > 0; --steps) {
      if (!all.empty() && random() % 5 >= 3) {
        take();
        continue;
      }
      queue::event added{static_cast<double>(random() % 7), spar::detail::sim_event_kind::leave, nullptr, nullptr};
      added.tie = random() % 3;
      events.schedule(added, added.tie);
      added.serial = scheduled++;
      all.push_back(added);
    }
    while (!all.empty()) take();
    EXPECT_TRUE(events.empty());
    EXPECT_EQ(events.scheduled(), scheduled);
  }
}

} // namespace
