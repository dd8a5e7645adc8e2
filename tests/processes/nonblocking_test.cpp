// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Over processes: hundreds of calls in flight, in a different order on each rank, and progress by a thread.
#include "support/extent.hpp"
#include "support/processes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace spar_test {
namespace {

using namespace std::chrono_literals;

/// Two hundred named calls, small and large, started in a different order on each rank.
void many_named_calls(communicator& net, std::uint64_t seed) {
  constexpr std::size_t calls = 200;
  std::vector<std::size_t> order(calls);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::mt19937_64 random(seed * 100 + static_cast<std::uint64_t>(net.rank()));
  std::shuffle(order.begin(), order.end(), random);
  std::vector<std::vector<float>> x(calls);
  std::vector<spar::pending<communicator, void>> started;
  for (const std::size_t c : order) {
    x[c].assign(c % 20 == 0 ? (over_mpi ? 5000 : 50'000) : 1 + c, static_cast<float>(c));
    started.push_back(spar::start_allreduce(net, spar::named{"layer " + std::to_string(c)}, std::span(x[c])));
  }
  for (auto& call : started) call.wait();
  for (std::size_t c = 0; c < calls; ++c) {
    ASSERT_EQ(x[c], std::vector<float>(x[c].size(), static_cast<float>(c * static_cast<std::size_t>(net.size()))));
  }
}

TEST(processes_named, two_hundred_in_flight_in_another_order_on_each_rank) {
  communicator net(meeting());
  const std::uint64_t orders = is_full() ? 100 : 5;
  for (std::uint64_t seed = 0; seed < orders; ++seed) many_named_calls(net, seed);
}

TEST(processes_split, goes_on_with_calls_in_flight_and_again_and_again) {
  communicator net(meeting());
  std::vector<float> x(200'000, 1.0F);
  auto call = spar::start_allreduce(net, std::span(x), spar::ring{});
  for (int i = 0; i < 5; ++i) {
    if (net.rank() == i % net.size()) std::this_thread::sleep_for(10ms);
    communicator half = net.split(net.rank() % 2, 0);
    float one = 1;
    spar::allreduce(half, std::span(&one, 1));
    EXPECT_EQ(one, static_cast<float>(half.size()));
  }
  call.wait();
  EXPECT_EQ(x[0], static_cast<float>(net.size()));
}

TEST(processes_progress_thread, splits) {
  communicator net(meeting());
  const spar::progress_thread progress(net);
  std::vector<float> x(200'000, 1.0F);
  auto call = spar::start_allreduce(net, std::span(x), spar::ring{});
  EXPECT_EQ(net.split(0, -net.rank()).rank(), net.size() - 1 - net.rank());
  call.wait();
  EXPECT_EQ(x[0], static_cast<float>(net.size()));
}

TEST(processes_progress_thread, many_calls) {
  communicator net(meeting());
  for (std::uint64_t seed = 0; seed < 2; ++seed) {
    const spar::progress_thread progress(net);
    many_named_calls(net, seed);
    std::vector<float> x(100'000, 1.0F);
    spar::allreduce(net, std::span(x));
    EXPECT_EQ(x[0], static_cast<float>(net.size()));
  }
  many_named_calls(net, 7); // and again without the thread
}

TEST(processes_progress_thread, calls_go_on_while_the_application_is_elsewhere) {
  communicator net(meeting());
  std::vector<float> x(50'000, 1.0F);
  if (net.rank() != 0) { // their calls need rank 0 in every round
    spar::allreduce(net, std::span(x), spar::ring{});
    wait_for_all();
  } else {
    const spar::progress_thread progress(net);
    auto call = spar::start_allreduce(net, std::span(x), spar::ring{});
    wait_for_all(); // calls nothing of this communicator
    call.wait();
  }
  EXPECT_EQ(x, std::vector<float>(50'000, static_cast<float>(net.size())));
}

TEST(processes_progress_thread, rests_and_is_there_again) {
  communicator net(meeting());
  const spar::progress_thread progress(net, {.idle = 0.01, .pause = 1e-3});
  for (int round = 0; round < 3; ++round) {
    std::this_thread::sleep_for(50ms); // by now the thread polls less often
    std::vector<float> x(1000, 1.0F);
    auto call = spar::start_allreduce(net, std::span(x));
    call.wait();
    EXPECT_EQ(x[999], static_cast<float>(net.size()));
  }
}

} // namespace
} // namespace spar_test
