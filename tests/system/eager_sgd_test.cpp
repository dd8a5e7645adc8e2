// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// eager-SGD: the ranks' weights stay equal although ranks are late, no gradient is lost, and models are averaged
// periodically.
#include "support/ranks.hpp"

#include <spar/system/eager_sgd.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace spar_test {
namespace {

using namespace std::chrono_literals;

constexpr int steps = 20;

/// Returns each rank's weights after all steps. With whole numbers and P = 4, nothing is rounded.
template <class Participation>
std::vector<std::vector<float>> train(const Participation& who, const spar::eager_sgd_options& options, float offset) {
  std::vector<std::vector<float>> weights(4);
  spar::thread_group group{4};
  group.run([&](spar::threads& net) {
    const spar::progress_thread progress(net);
    auto& mine = weights[static_cast<std::size_t>(net.rank())];
    mine.assign(10, offset * static_cast<float>(net.rank()));
    spar::eager_sgd<float, spar::threads, Participation> optimizer(net, mine.size(), who, {}, options);
    for (int step = 0; step < steps; ++step) {
      std::vector<float> gradient(10, static_cast<float>(4 * (net.rank() + 1)));
      if ((step + net.rank()) % 4 == 0) std::this_thread::sleep_for(1ms);
      const auto by = optimizer.step(mine, gradient, 2.0F);
      if (options.period > 0) { // all ranks wait for each other there
        EXPECT_LE(by.staleness(), options.period);
      }
    }
    EXPECT_EQ(optimizer.steps(), static_cast<std::uint64_t>(steps));
    optimizer.finish(mine);
  });
  return weights;
}

/// Each step subtracts 2 (4 + 8 + 12 + 16) / 4.
TEST(eager_sgd, every_gradient_counts_once_on_every_rank) {
  const std::vector<float> expected(10, -20.0F * steps);
  for (const auto& weights : train(spar::everyone{}, {}, 0)) EXPECT_EQ(weights, expected);
  for (const auto& weights : train(spar::solo{}, {}, 0)) EXPECT_EQ(weights, expected);
  for (const auto& weights : train(spar::majority{}, {}, 0)) EXPECT_EQ(weights, expected);
  for (const auto& weights : train(spar::quorum{2}, {}, 0)) EXPECT_EQ(weights, expected);
}

/// Weights that start as 0, 8, 16 and 24 stay apart, except if every fifth step replaces them by their average, 12.
TEST(eager_sgd, models_are_averaged_after_each_period) {
  const auto apart = train(spar::solo{}, {}, 8);
  const auto together = train(spar::solo{}, {.period = 5}, 8);
  for (std::size_t r = 0; r < 4; ++r) {
    EXPECT_EQ(apart[r], std::vector<float>(10, 8.0F * static_cast<float>(r) - 20.0F * steps));
    EXPECT_EQ(together[r], std::vector<float>(10, 12.0F - 20.0F * steps));
  }
}

TEST(eager_sgd, other_lengths_are_reported_before_anything_is_sent) {
  spar::thread_group group{1};
  spar::eager_sgd<float, spar::threads> optimizer(group.rank(0), 10);
  std::vector<float> weights(10, 1.0F);
  std::vector<float> gradient(11, 1.0F);
  EXPECT_THROW(optimizer.step(weights, gradient, 1.0F), spar::invalid_argument);
  weights.resize(11);
  EXPECT_THROW(optimizer.step(weights, gradient, 1.0F), spar::invalid_argument);
  weights.assign(10, 1.0F);
  gradient.assign(10, 1.0F);
  optimizer.step(weights, gradient, 0.5F);
  optimizer.finish(weights);
  EXPECT_EQ(weights, std::vector<float>(10, 0.5F));
}

} // namespace
} // namespace spar_test
