// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What only the transport over UCX does: messages of every form, waiting without an event, hosts. The tests in
// tests/processes run over UCX, too.
#include "support/messages.hpp"
#include "support/ucx_ranks.hpp"

#include <spar/transport/counting.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <span>
#include <thread>
#include <vector>

namespace spar_test {
namespace {

using namespace std::chrono_literals;

TEST(ucx_messages, of_every_form_arrive) {
  spar::ucx net(meeting());
  if (net.size() < 2) return;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    spar::counting counted(net);
    exchange_messages<in_host_memory>(counted, seed);
  }
  EXPECT_EQ(net.memory().live(), 0U);
}

TEST(ucx_progress, waiting_for_nothing_is_an_error) {
  spar::ucx net(meeting());
  const auto wait = [&] {
    for (int i = 0; i < 1000; ++i) net.progress(true); // UCX may have something to do at first
  };
  EXPECT_THROW(wait(), spar::deadlock);
}

TEST(ucx_split, refuses_a_negative_colour) {
  spar::ucx world(meeting());
  EXPECT_THROW((void)world.split(-1, 0), spar::invalid_argument);
}

/// Rank 0 begins to wait, does nothing for longer than a second, then asks rank 1 why its message is late. The question
/// opens a connection while this message arrives.
TEST(ucx_messages, one_that_arrives_while_its_wait_is_asked_about) {
  if (meeting().size() < 2) return;
  for (int i = 0; i < 3; ++i) {
    spar::ucx net(meeting());
    std::vector<float> x(2'000'000, net.rank() == 1 ? 7.0F : 0.0F);
    auto call = spar::start_broadcast(net, std::span(x), 1);
    net.progress(false);
    if (net.rank() == 0) {
      std::this_thread::sleep_for(1100ms);
      for (int polls = 0; polls < 1000; ++polls) net.progress(false);
    }
    call.wait();
    EXPECT_EQ(x.front(), 7);
    EXPECT_EQ(x.back(), 7);
  }
}

TEST(ucx_hosts, all_processes_of_this_test_are_on_one_host) {
  spar::ucx net(meeting());
  EXPECT_EQ(spar::hosts_of(net), std::vector<spar::rank_t>(static_cast<std::size_t>(net.size()), 0));
}

TEST(ucx_sleep, a_waiting_rank_takes_little_processor_time) {
  spar::ucx net(meeting());
  if (net.size() < 2) return;
  spar::barrier(net);
  const std::clock_t before = std::clock();
  if (net.rank() == 0) std::this_thread::sleep_for(1s);
  spar::barrier(net);
  EXPECT_LT(std::clock() - before, CLOCKS_PER_SEC / 20);
}

} // namespace
} // namespace spar_test
