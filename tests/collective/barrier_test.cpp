// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// No rank leaves a barrier before all ranks have entered it.
#include "support/ranks.hpp"

#include <spar/collective/basic/barrier.hpp>
#include <spar/spar.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
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
    const spar::dissemination_barrier barrier;
    for (int round = 0; round < 5; ++round) {
      const spar::recursive_doubling reduce;
      if (late && round % 2 == 1) co_await reduce(net, x, op);
      ++*come;
      co_await barrier(net);
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

/// Enters the barrier of the front door three times, without a name, with a name, and with two barriers in flight.
struct meet_at_the_front_door {
  std::atomic<int>* come;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    std::uint64_t rounds = 0;
    while ((1 << rounds) < net.size()) ++rounds;
    ++*come;
    auto first = spar::start_barrier(net);
    co_await std::move(first);
    EXPECT_GE(*come, net.size());
    EXPECT_EQ(first.statistics().messages_sent, rounds);
    EXPECT_EQ(first.statistics().bytes_sent, 0U);
    ++*come;
    auto second = spar::start_barrier(net, spar::named{"second"});
    co_await std::move(second);
    EXPECT_GE(*come, 2 * net.size());
    ++*come;
    auto third = spar::start_barrier(net);
    ++*come;
    auto fourth = spar::start_barrier(net);
    co_await std::move(fourth);
    EXPECT_EQ(*come, 4 * net.size());
    co_await std::move(third);
  }
};

TEST(barrier, of_the_front_door) {
  for (const mode where : all_modes) {
    for (const spar::rank_t ranks : all_ranks) {
      std::atomic<int> come = 0;
      run(where, ranks, meet_at_the_front_door{&come});
      EXPECT_EQ(come, 4 * ranks) << where;
    }
  }
}

TEST(barrier, blocks_and_has_a_name) {
  std::atomic<int> come = 0;
  spar::thread_group group(5);
  group.run([&](spar::threads& net) {
    ++come;
    spar::barrier(net);
    EXPECT_GE(come, 5);
    ++come;
    // Each rank starts the call before the barrier, or the barrier before the call.
    std::vector<float> x{1};
    const auto sum = [&] { return spar::start_allreduce(net, spar::named{"sum"}, x); };
    if (net.rank() % 2 == 0) {
      auto call = sum();
      spar::barrier(net, spar::named{"middle"});
      EXPECT_GE(come, 10);
      call.wait();
    } else {
      auto barrier = spar::start_barrier(net, spar::named{"middle"});
      sum().wait();
      barrier.wait();
    }
    EXPECT_EQ(x[0], 5);
  });
}

TEST(barrier, that_meets_another_collective_is_a_mismatch) {
  spar::thread_group group(3);
  EXPECT_THROW(group.run([&](spar::threads& net) {
    std::vector<float> x(3);
    if (net.rank() == 1)
      spar::allreduce(net, x, spar::ring{});
    else
      spar::barrier(net);
  }),
               spar::mismatch);
}

/// Ranks make different calls before they leave together, and none after it.
struct leave_together {
  std::atomic<int>* come;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    std::vector<float> x(2000, 1.0F);
    auto before = spar::start_allreduce(net, std::span(x));
    auto named = spar::start_barrier(net, spar::named{"first"});
    if (net.size() > 1) { // the calls are in flight
      EXPECT_THROW((void)spar::start_leave(net), spar::invalid_argument);
    }
    co_await std::move(before);
    co_await std::move(named);
    ++*come;
    auto leaving = spar::start_leave(net);
    EXPECT_THROW((void)spar::start_barrier(net), spar::invalid_argument); // the other ranks would not take part
    co_await std::move(leaving);
    EXPECT_EQ(*come, net.size());
    std::uint64_t rounds = 0;
    while ((1 << rounds) < net.size()) ++rounds;
    EXPECT_EQ(leaving.statistics().messages_sent, rounds);
    EXPECT_THROW((void)spar::start_allreduce(net, std::span(x)), spar::invalid_argument);
    EXPECT_THROW((void)spar::start_barrier(net, spar::named{"second"}), spar::invalid_argument);
    EXPECT_THROW((void)spar::start_leave(net), spar::invalid_argument);
    EXPECT_FALSE(net.dead());
  }
};

TEST(leave, waits_for_all_ranks_and_ends_the_communicator) {
  for (const mode where : all_modes) {
    for (const spar::rank_t ranks : all_ranks) {
      std::atomic<int> come = 0;
      run(where, ranks, leave_together{&come});
      EXPECT_EQ(come, ranks) << where;
    }
  }
}

TEST(leave, blocks_until_the_last_rank_comes) {
  std::atomic<int> come = 0;
  spar::thread_group group(5);
  group.run([&](spar::threads& inner) {
    ++come;
    spar::counting<spar::threads> net(inner);
    spar::leave(net);
    EXPECT_EQ(come, 5);
    std::vector<float> x(10);
    EXPECT_THROW(spar::allreduce(net, x), spar::invalid_argument);
    EXPECT_THROW(spar::barrier(inner), spar::invalid_argument); // the wrapped communicator has ended, too
  });
}

TEST(leave, that_meets_another_collective_is_a_mismatch) {
  spar::thread_group group(3);
  EXPECT_THROW(group.run([&](spar::threads& net) {
    try {
      net.rank() == 1 ? spar::barrier(net) : spar::leave(net);
    } catch (...) {
      EXPECT_THROW(spar::barrier(net), spar::peer_failed); // the ranks have not left
      throw;
    }
  }),
               spar::mismatch);
}

TEST(leave, without_a_rank_that_has_left_alone_fails) {
  spar::thread_group group(3);
  EXPECT_THROW(group.run([&](spar::threads& net) {
    if (net.rank() != 1) spar::leave(net);
  }),
               spar::peer_failed);
}

} // namespace
} // namespace spar_test
