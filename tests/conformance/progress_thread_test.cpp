// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A thread that makes progress while the application is elsewhere.
#include "support/ranks.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace spar_test {
namespace {

using namespace std::chrono_literals;

static_assert(spar::shareable<spar::threads>);
static_assert(!spar::shareable<spar::sim>);

TEST(progress_thread, calls_go_on_while_the_application_is_elsewhere) {
  for (const bool synchronous : {false, true}) {
    for (const spar::rank_t ranks : {2, 3, 5}) {
      std::atomic<int> ended = 0;
      spar::thread_group group{ranks, {.synchronous = synchronous}};
      group.run([&](spar::threads& net) {
        std::vector<float> x(50'000, 1.0F);
        if (net.rank() != 0) { // needs rank 0 in every round
          spar::allreduce(net, std::span(x), spar::ring{});
          ++ended;
        } else {
          const spar::progress_thread progress(net);
          auto call = spar::start_allreduce(net, std::span(x), spar::ring{});
          const auto give_up = std::chrono::steady_clock::now() + 20s;
          while (ended < ranks - 1 && std::chrono::steady_clock::now() < give_up) std::this_thread::sleep_for(1ms);
          EXPECT_EQ(ended, ranks - 1);
          call.wait();
        }
        EXPECT_EQ(x[0], static_cast<float>(ranks));
      });
    }
  }
}

TEST(progress_thread, every_form_of_call_and_results_that_outlive_it) {
  spar::thread_group group{3};
  group.run([&](spar::threads& net) {
    std::vector<spar::stream<float>> kept;
    for (int round = 0; round < 20; ++round) {
      auto progress = std::make_unique<spar::progress_thread<spar::threads>>(net);
      std::vector<float> x(1000, 1.0F);
      const std::vector<std::uint32_t> indices{3, 700};
      const std::vector<float> values{1.0F, 2.0F};
      auto sparse = spar::start_allreduce(net, spar::sparse_view(1000, indices, values), spar::sparcml{});
      auto named = spar::start_allreduce(net, spar::named{"x"}, std::span(x));
      std::vector<float> y(10, 1.0F);
      spar::allreduce(net, std::span(y));
      EXPECT_EQ(y[9], 3.0F);
      while (!named.done()) {
      }
      named.wait();
      EXPECT_EQ(x[999], 3.0F);
      {
        std::vector<float> dropped(100, 1.0F);
        const auto handle = spar::start_allreduce(net, std::span(dropped));
      }
      kept.push_back(sparse.wait());
      if (round % 2 == 0) progress.reset();
    }
    std::vector<float> x(1000);
    kept.back().to_dense(std::span(x));
    EXPECT_EQ(x[3], 3.0F);
    EXPECT_EQ(x[700], 6.0F);
  });
}

TEST(progress_thread, many_calls_in_flight) {
  spar::thread_group group{4};
  group.run([&](spar::threads& net) {
    const spar::progress_thread progress(net);
    std::vector<std::vector<std::int64_t>> x(200);
    std::vector<spar::pending<spar::threads, void>> calls;
    for (std::size_t c = 0; c < x.size(); ++c) {
      x[c].assign(1 + 50 * c, static_cast<std::int64_t>(c));
      calls.push_back(spar::start_allreduce(net, std::span(x[c])));
    }
    for (std::size_t c = x.size(); c-- > 0;) calls[c].wait();
    for (std::size_t c = 0; c < x.size(); ++c) ASSERT_EQ(x[c].back(), static_cast<std::int64_t>(4 * c));
  });
}

TEST(progress_thread, ends_a_call_whose_deadline_is_over) {
  spar::thread_group group{2};
  group.run([&](spar::threads& net) {
    net.set_deadline(0.05);
    const spar::progress_thread progress(net);
    if (net.rank() == 1) return;
    std::vector<float> x(10, 1.0F);
    auto call = spar::start_allreduce(net, std::span(x));
    while (!net.dead()) std::this_thread::sleep_for(1ms);
    EXPECT_THROW(call.wait(), spar::timeout);
  });
}

TEST(progress_thread, tells_that_a_coroutine_cannot_wait) {
  spar::thread_group group{1};
  spar::threads& net = group.rank(0);
  const spar::progress_thread progress(net);
  float x = 1;
  const auto awaiting = [](spar::threads& its, float* value) -> spar::task<void> {
    auto call = spar::start_allreduce(its, std::span<float>(value, 1));
    co_await std::move(call);
  };
  try {
    spar::wait(net, awaiting(net, &x));
    ADD_FAILURE() << "no error";
  } catch (const spar::error& e) {
    EXPECT_NE(std::string(e.what()).find("progress thread"), std::string::npos) << e.what();
  }
}

} // namespace
} // namespace spar_test
