// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// No rank leaves a barrier before all ranks have entered it.
#include "support/ranks.hpp"

#include <spar/collective/basic/barrier.hpp>
#include <spar/spar.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <span>
#include <string_view>
#include <vector>

namespace spar_test {
namespace {

/// Enters the barrier five times. If `late`, ranks exchange other messages before every second barrier.
struct meet : spar::algorithm_defaults {
  static constexpr std::string_view name = "meet";
  std::atomic<int>* come;
  bool late;

  meet(std::atomic<int>* its, bool comes_late) : come(its), late(comes_late) {}

  template <spar::transport Net, spar::element T, spar::reduction<T> Op>
  spar::task<void> operator()(spar::channel<Net> net, std::span<T> x, Op op) const& {
    for (int round = 0; round < 5; ++round) {
      const spar::recursive_doubling reduce;
      if (late && round % 2 == 1) co_await reduce(net, x, op);
      ++*come;
      co_await spar::barrier(net);
      EXPECT_GE(*come, (round + 1) * net.size()) << "round " << round;
    }
  }
  template <class... Args>
  void operator()(Args&&...) && = delete;
};

struct call {
  std::atomic<int>* come;
  bool late;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    std::vector<float> x(10);
    auto pending = spar::start_allreduce(net, std::span(x), meet(come, late));
    co_await std::move(pending);
    const auto p = static_cast<std::uint64_t>(net.size());
    std::uint64_t rounds = 0;
    while ((std::uint64_t{1} << rounds) < p) ++rounds;
    if (!late) {
      EXPECT_EQ(pending.statistics().messages_sent, 5 * rounds);
    }
  }
};

TEST(barrier, nobody_is_through_before_all_have_come) {
  for (const mode where : all_modes) {
    for (const spar::rank_t ranks : all_ranks) {
      for (const bool late : {false, true}) {
        std::atomic<int> come = 0;
        run(where, ranks, call{&come, late});
        EXPECT_EQ(come, 5 * ranks) << where;
      }
    }
  }
}

} // namespace
} // namespace spar_test
