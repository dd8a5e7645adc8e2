// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Processes that go on after others have been killed or stopped, by ucx::shrink. The test serves the store.
#include "rendezvous/processes.hpp"
#include "support/extent.hpp"

#include <spar/ucx.hpp>

#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <csignal>
#include <cstdlib>

namespace spar_test {
namespace {

using spar::rank_t;

std::uint64_t bit(rank_t r) { return std::uint64_t{1} << r; }

constexpr const char* both[] = {"all", "tcp,self"};

/// How the program of a rank ends. GoogleTest's checks do not reach the test from another process.
enum outcome : int { complete = 0, refused = 10, wrong_sum = 20, rank_came_back = 21, wrong_number = 22 };

/// The sum of 2^id over all ranks in a short message, and in a long one; 0 if they differ.
std::uint64_t members(spar::ucx& net, rank_t id) {
  std::vector<double> few(10, static_cast<double>(bit(id))), many(30'000, static_cast<double>(bit(id)));
  spar::allreduce(net, std::span(few), spar::ring{});
  spar::allreduce(net, std::span(many), spar::ring{});
  for (const double sum : many) {
    if (sum != few[0]) return 0;
  }
  return static_cast<std::uint64_t>(few[0]);
}

/// Makes `calls` calls on `net`, and goes on with the survivors when the calls fail.
int program(spar::ucx& net, rank_t id, std::uint64_t left, std::uint64_t call, std::uint64_t calls) {
  try {
    std::vector<std::uint64_t> least{call}; // a rank may have completed one call more than others
    spar::allreduce(net, std::span(least), spar::ring{}, spar::minimum{});
    for (call = least[0]; call < calls; ++call) {
      const std::uint64_t now = members(net, id);
      if (now == 0 || (now & bit(id)) == 0) return wrong_sum;
      if ((now & ~left) != 0) return rank_came_back;
      if (std::popcount(now) != net.size() || std::popcount(now & (bit(id) - 1)) != net.rank()) return wrong_number;
      left = now;
    }
    return complete;
  } catch (const spar::error&) {
  }
  try {
    spar::ucx rest = net.shrink();
    return program(rest, id, left, call, calls);
  } catch (const spar::peer_failed&) {
    return refused;
  }
}

/// The processes of `ranks` ranks, which meet in this process. They use the `transports` of UCX. The thread of the
/// server starts after the processes, for a process that is made while another thread holds a lock of UCX would hang.
class job {
 public:
  job(rank_t ranks, const char* transports, double deadline, std::uint64_t calls) {
    const spar::rendezvous_options where = test::here(port_.get(), 60);
    for (rank_t r = 0; r < ranks; ++r) {
      processes_.emplace_back([=] {
        ::setenv("UCX_TLS", transports, 1);
        const spar::rendezvous meeting(std::make_shared<spar::tcp_store>(where), r, ranks, where);
        spar::ucx net(meeting);
        net.set_deadline(deadline);
        return program(net, r, bit(ranks) - 1, 0, calls);
      });
    }
    server_.emplace(where);
  }
  test::process& operator[](rank_t r) { return processes_[static_cast<std::size_t>(r)]; }

 private:
  test::reserved_port port_;
  std::optional<spar::tcp_store_server> server_;
  std::vector<test::process> processes_; // end before the server
};

void sleep_ms(int time) { std::this_thread::sleep_for(std::chrono::milliseconds(time)); }

TEST(ucx_shrink, survivors_complete_all_calls) {
  for (const char* const transports : both) {
    for (const rank_t ranks : {2, 4}) {
      const rank_t lost = ranks / 2;
      job all(ranks, transports, 30, 3000); // longer than the rank lives
      sleep_ms(150);
      const test::stopwatch time;
      ::kill(all[lost].id(), SIGKILL);
      for (rank_t r = 0; r < ranks; ++r) EXPECT_EQ(all[r].status(), r == lost ? -SIGKILL : complete) << r;
      EXPECT_LT(time.seconds(), 15); // not the deadline
    }
  }
}

/// A process that is stopped for longer than the deadline is a stranger when it goes on.
TEST(ucx_shrink, a_stopped_process_is_refused_later) {
  job all(3, both[0], 4, 3000); // a failed call may take one second to end
  sleep_ms(150);
  ::kill(all[1].id(), SIGSTOP);
  EXPECT_EQ(all[0].status(), complete);
  EXPECT_EQ(all[2].status(), complete);
  ::kill(all[1].id(), SIGCONT);
  EXPECT_EQ(all[1].status(), refused);
}

/// Over shared memory: UCX 1.13 ends a process by an assertion in ucp_request.c if a peer dies while a
/// connection over TCP opens, which new communicators do at their first calls.
TEST(ucx_shrink, after_random_kills) {
  std::mt19937 random(5);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const std::size_t descriptors = test::open_descriptors(), threads = test::running_threads();
  for (int run = 0; run < (is_full() ? 500 : 12) && !testing::Test::HasFailure(); ++run) {
    SCOPED_TRACE(testing::Message() << "run " << run);
    const rank_t ranks = 2 + below(7), healthy = below(ranks);
    job all(ranks, both[0], 30, 200);
    std::vector<bool> killed(static_cast<std::size_t>(ranks));
    sleep_ms(50);
    for (rank_t r = 0; r < ranks; ++r) {
      if (r == healthy || below(2) == 0) continue;
      sleep_ms(below(100));
      killed[static_cast<std::size_t>(r)] = true;
      ::kill(all[r].id(), SIGKILL);
    }
    for (rank_t r = 0; r < ranks; ++r) {
      const int status = all[r].status();
      EXPECT_TRUE(status == complete || (killed[static_cast<std::size_t>(r)] && status == -SIGKILL))
          << "rank " << r << " of " << ranks << ": " << status;
    }
  }
  EXPECT_EQ(test::open_descriptors(), descriptors);
  EXPECT_EQ(test::running_threads(), threads);
}

} // namespace
} // namespace spar_test
