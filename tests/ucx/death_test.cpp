// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Processes over UCX that end: a killed rank is known to all others within a second, over shared memory and over TCP; a
// rank that leaves in order is no failure; and nothing is left over TCP.
#include "rendezvous/processes.hpp"

#include <spar/ucx.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <csignal>
#include <sys/mman.h>

namespace spar_test {
namespace {

constexpr std::size_t most_ranks = 8;

/// What a process tells its parent, in memory that both share.
struct outcome {
  spar::detail::atomic<int> calls = 0; // that have ended
  double time = 0;                     // when the error was caught
  std::array<char, 512> error{};

  void note(const std::string& text) {
    time = spar::detail::monotonic_seconds();
    error[text.copy(error.data(), error.size() - 1)] = '\0';
  }
};
using outcomes = std::array<outcome, most_ranks>;

struct unmap {
  void operator()(outcomes* all) const { munmap(all, sizeof(*all)); }
};
std::unique_ptr<outcomes, unmap> shared_outcomes() {
  void* const memory = mmap(nullptr, sizeof(outcomes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return std::unique_ptr<outcomes, unmap>(::new (memory) outcomes);
}

/// Starts `ranks` processes, each of which runs `program(meeting, own)`.
template <class Program>
std::vector<test::process> start(spar::rank_t ranks, const char* transports, const test::reserved_port& port,
                                 outcomes& all, Program program) {
  std::vector<test::process> processes;
  for (spar::rank_t r = 0; r < ranks; ++r) {
    processes.emplace_back([&, r] {
      setenv("UCX_TLS", transports, 1);
      const auto where = test::here(port.get());
      std::shared_ptr<spar::rendezvous_store> store;
      if (r == 0)
        store = std::make_shared<spar::tcp_store_server>(where);
      else
        store = std::make_shared<spar::tcp_store>(where);
      const spar::rendezvous meeting(std::move(store), r, ranks, where);
      program(meeting, all[static_cast<std::size_t>(r)]);
      return 0;
    });
  }
  return processes;
}

/// Adds up vectors of `n` values until that fails.
void add_until_failure(const spar::rendezvous& meeting, outcome& own, std::size_t n) {
  spar::ucx net(meeting);
  std::vector<float> x(n, 1.0F);
  try {
    for (;;) {
      spar::allreduce(net, std::span(x));
      std::fill(x.begin(), x.end(), 1.0F);
      own.calls += 1;
    }
  } catch (const std::exception& e) {
    own.note(e.what());
  }
}

class ucx_death : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(over, ucx_death, testing::Values("all", "tcp,self"), [](const auto& which) {
  return std::string(which.param == std::string("all") ? "shared_memory" : "tcp");
});

TEST_P(ucx_death, of_a_killed_rank_is_known_within_a_second) {
  std::mt19937 random(7);
  for (const spar::rank_t ranks : {2, 3, 5}) {
    for (const std::size_t n : {std::size_t{10}, std::size_t{500'000}}) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, " << n << " values");
      const test::reserved_port port;
      const auto all = shared_outcomes();
      auto processes = start(ranks, GetParam(), port, *all, [n](const spar::rendezvous& meeting, outcome& own) {
        add_until_failure(meeting, own, n);
      });
      const auto victim = static_cast<std::size_t>(random()) % processes.size();
      const test::stopwatch watch;
      while ((*all)[victim].calls < 3 && watch.seconds() < 30) test::rest(1e-3);
      test::rest(1e-5 * static_cast<double>(random() % 1000));
      const double killed = spar::detail::monotonic_seconds();
      kill(processes[victim].id(), SIGKILL);
      for (std::size_t r = 0; r < processes.size(); ++r) {
        EXPECT_EQ(processes[r].status(), r == victim ? -SIGKILL : 0);
        if (r == victim) continue;
        const std::string text((*all)[r].error.data());
        EXPECT_NE(text.find("rank " + std::to_string(victim) + " failed, so its communicator is dead: "), text.npos)
            << text;
        EXPECT_LT((*all)[r].time - killed, 1) << "rank " << r;
      }
    }
  }
}

/// Rank 0 leaves all its communicators, and its process ends, while the others go on in a group of their own.
TEST_P(ucx_death, of_a_process_whose_rank_has_left_is_no_failure) {
  const test::reserved_port port;
  const auto all = shared_outcomes();
  auto processes = start(3, GetParam(), port, *all, [](const spar::rendezvous& meeting, outcome& own) {
    spar::ucx world(meeting);
    std::vector<float> x(10, 1.0F);
    spar::allreduce(world, std::span(x));
    spar::ucx group = world.split(world.rank() == 0 ? 0 : 1, 0);
    if (world.rank() == 0) return;
    const double end = world.now() + 0.5;
    while (world.now() < end) world.progress(false);
    spar::allreduce(group, std::span(x));
    if (world.dead() || group.dead()) own.note("a communicator is dead");
  });
  for (auto& each : processes) EXPECT_EQ(each.status(), 0);
  for (const outcome& each : *all) EXPECT_STREQ(each.error.data(), "");
}

/// Rank 1 makes no progress, so rank 0 gives up its messages after a second.
TEST(ucx_worker, leaves_no_descriptor_over_tcp) {
  const test::reserved_port port;
  const auto all = shared_outcomes();
  auto processes = start(2, "tcp,self", port, *all, [](const spar::rendezvous& meeting, outcome& own) {
    spar::ucx world(meeting);
    std::vector<float> x(500'000, 1.0F);
    spar::allreduce(world, std::span(x));
    const std::size_t before = test::open_descriptors();
    {
      spar::ucx net = world.split(0, world.rank());
      net.set_deadline(0.1);
      if (net.rank() == 0) {
        EXPECT_THROW(spar::allreduce(net, std::span(x), spar::ring{}), spar::error);
      }
      (void)meeting.exchange("");
    }
    const std::size_t after = test::open_descriptors();
    if (world.rank() == 0 && after != before)
      own.note(std::to_string(before) + " descriptors have become " + std::to_string(after));
  });
  for (auto& each : processes) EXPECT_EQ(each.status(), 0);
  for (const outcome& each : *all) EXPECT_STREQ(each.error.data(), "");
}

} // namespace
} // namespace spar_test
