// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Over processes: error feedback in buckets, with progress by calls and by a thread, loses nothing while buckets are
// rebuilt.
#include "support/processes.hpp"

#include <spar/system/bucketed_feedback.hpp>
#include <spar/system/published.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace spar_test {
namespace {

void expect_nothing_lost(bool by_thread) {
  communicator net(meeting());
  std::optional<spar::progress_thread<communicator>> progress;
  if (by_thread) progress.emplace(net);
  std::vector<spar::parameter> order{{"head", 10}, {"fc2", 3000}, {"bias", 1}, {"fc1", 10'000}};
  const auto model = order;
  spar::bucketed_feedback<communicator, float, spar::ok_topk_allreduce<>> feedback(
      net, order, {.bucket_bytes = 8000}, {.select = {.density = 0.05, .period = 3}});
  std::mt19937_64 shared(3), own(static_cast<std::uint64_t>(net.rank()));
  std::vector<std::vector<float>> brought, received, x;
  for (const auto& p : model) brought.emplace_back(p.size), received.emplace_back(p.size), x.emplace_back(p.size);
  for (int step = 0; step < 12; ++step) {
    if (step % 4 == 3) {
      std::shuffle(order.begin(), order.end(), shared);
      feedback.rebuild(order, shared() % 100'000 + 1);
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
      for (std::size_t j = 0; j < x[i].size(); ++j) {
        x[i][j] = static_cast<float>(own() % 41) - 20;
        brought[i][j] += x[i][j];
      }
    }
    std::vector<std::size_t> ready{0, 1, 2, 3};
    std::shuffle(ready.begin(), ready.end(), own);
    for (const std::size_t i : ready) {
      feedback.ready(model[i].name, x[i]);
      feedback.progress();
    }
    feedback.wait();
    for (std::size_t i = 0; i < x.size(); ++i)
      for (std::size_t j = 0; j < x[i].size(); ++j) received[i][j] += x[i][j];
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto residual = feedback.residual(model[i].name);
    std::vector<float> kept(residual.begin(), residual.end());
    spar::allreduce(net, kept, spar::ring{});
    spar::allreduce(net, brought[i], spar::ring{});
    for (std::size_t j = 0; j < kept.size(); ++j) ASSERT_EQ(received[i][j] + kept[j], brought[i][j]);
  }
}

TEST(processes_bucketed_feedback, nothing_is_lost) { expect_nothing_lost(false); }
TEST(processes_bucketed_feedback, nothing_is_lost_with_a_progress_thread) { expect_nothing_lost(true); }

} // namespace
} // namespace spar_test
