// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ranks that go on after a failure, by threads::shrink.
#include "support/extent.hpp"

#include <spar/spar.hpp>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <latch>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace spar_test {
namespace {

using spar::rank_t;

struct death : std::runtime_error {
  death() : std::runtime_error("the disk is full") {}
};

std::uint64_t bit(rank_t r) { return std::uint64_t{1} << r; }

/// Sums 2^id over all ranks, densely with short and long messages and as streams. Returns the sum, of which each bit is
/// a rank that has taken part.
std::uint64_t members(spar::threads& net, rank_t id) {
  std::uint64_t all = 0;
  for (const std::size_t n : {std::size_t{10}, std::size_t{5000}}) {
    std::vector<double> x(n, static_cast<double>(bit(id)));
    spar::allreduce(net, std::span(x), spar::ring{});
    for (const double sum : x) EXPECT_EQ(sum, x[0]);
    EXPECT_TRUE(all == 0 || x[0] == static_cast<double>(all));
    all = static_cast<std::uint64_t>(x[0]);
  }
  const std::vector<std::uint32_t> indices{static_cast<std::uint32_t>(id)};
  const std::vector<float> values{1.0F};
  const auto sum = spar::allreduce(net, spar::sparse_view(64, indices, values));
  std::uint64_t of_streams = 0;
  sum.for_each([&](std::uint64_t i, float) { of_streams |= bit(static_cast<rank_t>(i)); });
  EXPECT_EQ(of_streams, all);
  // Every rank once, in the old order.
  EXPECT_EQ(std::popcount(all), net.size());
  EXPECT_EQ(std::popcount(all & (bit(id) - 1)), net.rank());
  return all;
}

TEST(shrink, survivors_go_on_without_a_rank_that_throws) {
  for (rank_t ranks = 2; ranks <= 8; ++ranks) {
    for (rank_t lost = 0; lost < ranks; ++lost) {
      std::atomic<int> survivors = 0;
      std::latch all(ranks); // a rank that fails also ends the last call of slower ones
      spar::thread_group group{ranks};
      EXPECT_THROW(group.run([&](spar::threads& net) {
        const rank_t id = net.rank();
        EXPECT_EQ(members(net, id), bit(ranks) - 1);
        all.arrive_and_wait();
        if (id == lost) throw death();
        EXPECT_THROW(members(net, id), spar::peer_failed);
        spar::threads& rest = net.shrink();
        EXPECT_EQ(members(rest, id), (bit(ranks) - 1) & ~bit(lost));
        EXPECT_TRUE(net.dead());
        EXPECT_FALSE(rest.dead());
        EXPECT_EQ(&net.shrink(), &rest); // the same again
        ++survivors;
      }),
                   death);
      EXPECT_EQ(survivors, ranks - 1);
    }
  }
}

TEST(shrink, survivors_go_on_without_a_rank_that_has_left) {
  spar::thread_group group{3};
  group.run([](spar::threads& net) {
    const rank_t id = net.rank();
    if (id == 1) return;
    EXPECT_THROW(spar::barrier(net), spar::peer_failed);
    EXPECT_EQ(members(net.shrink(), id), bit(0) | bit(2));
  });
}

TEST(shrink, one_rank_may_be_left) {
  spar::thread_group group{4};
  group.run([](spar::threads& net) {
    const rank_t id = net.rank();
    if (id != 2) return;
    EXPECT_EQ(members(net.shrink(), id), bit(2));
  });
}

TEST(shrink, keeps_the_settings_of_the_communicator) {
  std::latch all(3);
  spar::thread_group group{3, {.synchronous = true}};
  group.run([&](spar::threads& net) {
    spar::network_model model;
    model.alpha = 1.25e-5;
    net.set_network(model);
    net.set_deadline(77);
    net.set_checksums(true);
    all.arrive_and_wait();
    const rank_t id = net.rank();
    if (id == 0) return;
    spar::threads& rest = net.shrink();
    EXPECT_EQ(rest.deadline(), 77);
    EXPECT_TRUE(rest.checksums());
    EXPECT_EQ(rest.network().alpha, 1.25e-5);
    EXPECT_EQ(members(rest, id), bit(1) | bit(2));
  });
}

TEST(shrink, of_a_living_communicator_ends_the_calls_of_the_others) {
  spar::thread_group group{4};
  group.run([](spar::threads& net) {
    const rank_t id = net.rank();
    if (id != 3) { // the others wait for rank 3
      try {
        spar::barrier(net);
        ADD_FAILURE() << "rank 3 is not in the barrier";
      } catch (const spar::peer_failed& e) {
        EXPECT_STREQ(e.what(), "rank 3 failed, so its communicator is dead: it has called shrink");
      }
    }
    EXPECT_EQ(members(net.shrink(), id), bit(4) - 1); // nobody is lost
  });
}

TEST(shrink, again_after_another_failure) {
  std::atomic<int> survivors = 0;
  std::array<std::latch, 3> all{std::latch(6), std::latch(5), std::latch(4)};
  spar::thread_group group{6};
  EXPECT_THROW(group.run([&](spar::threads& world) {
    const rank_t id = world.rank();
    spar::threads* net = &world;
    std::uint64_t left = bit(6) - 1;
    const std::array lost{3, 0, 5};
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(members(*net, id), left);
      all[i].arrive_and_wait();
      if (id == lost[i]) throw death();
      EXPECT_THROW(members(*net, id), spar::peer_failed);
      net = &net->shrink();
      left &= ~bit(lost[i]);
    }
    EXPECT_EQ(members(*net, id), left);
    ++survivors;
  }),
               death);
  EXPECT_EQ(survivors, 3);
}

/// A silent rank is given up after the deadline; when it comes, it learns this.
TEST(shrink, a_silent_rank_is_a_stranger_later) {
  std::atomic<int> survivors = 0;
  spar::thread_group group{3};
  group.run([&](spar::threads& net) {
    const rank_t id = net.rank();
    if (id == 1) {
      while (survivors < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_THROW(spar::barrier(net), spar::peer_failed);
      try {
        (void)net.shrink();
        ADD_FAILURE() << "the others have gone on without rank 1";
      } catch (const spar::peer_failed& e) {
        EXPECT_STREQ(e.what(), "rank 1 (this rank) called shrink after another rank had waited for it until the "
                               "deadline, so the others go on without it");
      }
      return;
    }
    net.set_deadline(0.1);
    EXPECT_THROW(spar::barrier(net), spar::error); // timeout, or peer_failed with this reason
    net.set_deadline(1);
    spar::threads& rest = net.shrink();
    rest.set_deadline(60);
    EXPECT_EQ(members(rest, id), bit(0) | bit(2));
    ++survivors;
  });
}

TEST(shrink, a_late_rank_belongs_to_the_survivors) {
  spar::thread_group group{3};
  group.run([&](spar::threads& net) {
    const rank_t id = net.rank();
    if (id == 1) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    EXPECT_EQ(members(net.shrink(), id), bit(3) - 1);
  });
}

/// A rank that ends after it has called shrink has left the new communicator.
TEST(shrink, a_survivor_that_leaves_ends_the_calls_of_the_others) {
  spar::thread_group group{4};
  group.run([](spar::threads& net) {
    const rank_t id = net.rank();
    if (id == 0) return;
    spar::threads& rest = net.shrink();
    if (id == 1) return;
    try {
      spar::barrier(rest);
      ADD_FAILURE() << "rank 1 is not in the barrier";
    } catch (const spar::peer_failed& e) {
      EXPECT_NE(std::string(e.what()).find("rank 0 has left"), std::string::npos) << e.what();
    }
    EXPECT_EQ(members(rest.shrink(), id), bit(2) | bit(3));
  });
}

TEST(shrink, ends_calls_in_flight) {
  spar::thread_group group{3};
  group.run([](spar::threads& net) {
    const rank_t id = net.rank();
    if (id == 2) return;
    std::vector<float> x(100'000, 1.0F);
    auto call = spar::start_allreduce(net, std::span(x), spar::ring{});
    spar::threads& rest = net.shrink();
    EXPECT_THROW(call.wait(), spar::peer_failed);
    EXPECT_EQ(members(rest, id), bit(0) | bit(1));
  });
}

TEST(shrink, with_a_progress_thread_on_both_communicators) {
  spar::thread_group group{3};
  group.run([](spar::threads& net) {
    const rank_t id = net.rank();
    const spar::progress_thread background(net);
    if (id == 0) return;
    spar::threads& rest = net.shrink();
    const spar::progress_thread of_rest(rest);
    EXPECT_EQ(members(rest, id), bit(1) | bit(2));
  });
}

spar::task<void> shrink_after_a_barrier(spar::threads& net) {
  co_await spar::start_barrier(net);
  (void)net.shrink();
}

TEST(shrink, is_not_for_coroutines_that_have_waited) {
  spar::thread_group group{2};
  group.run([](spar::threads& net) {
    if (net.rank() == 1) { // rank 0 waits for it
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      return spar::barrier(net);
    }
    try {
      spar::run_until_done(net, shrink_after_a_barrier(net));
      ADD_FAILURE() << "shrink blocks";
    } catch (const spar::invalid_argument& e) {
      EXPECT_STREQ(e.what(), "a coroutine on rank 0 calls shrink, which blocks; call it outside of coroutines, for "
                             "example after run_until_done");
    }
  });
}

/// Each run of a group begins with all ranks, also if the last one ended with fewer.
TEST(shrink, a_group_may_run_again) {
  spar::thread_group group{3};
  for (const rank_t lost : {1, 2, 0}) {
    group.run([&](spar::threads& net) {
      const rank_t id = net.rank();
      if (id == lost) return;
      EXPECT_EQ(members(net.shrink(), id), (bit(3) - 1) & ~bit(lost));
    });
  }
}

/// What is not sent yet when a rank is lost is sent among those that go on.
TEST(shrink, residuals_go_on) {
  std::latch all(3);
  spar::thread_group group{3};
  group.run([&](spar::threads& net) {
    const rank_t id = net.rank();
    spar::topka<float> reduce({.select = {.k = 1}});
    std::vector<float> x{4, 1, 2, 3};
    reduce(net, x);
    EXPECT_EQ(x, (std::vector<float>{12, 0, 0, 0}));
    all.arrive_and_wait();
    if (id == 1) return;
    spar::threads& rest = net.shrink();
    std::vector<float> sums(4);
    for (int call = 0; call < 3; ++call) {
      std::vector<float> nothing(4);
      reduce(rest, nothing);
      for (std::size_t i = 0; i < 4; ++i) sums[i] += nothing[i];
    }
    EXPECT_EQ(sums, (std::vector<float>{0, 2, 4, 6})); // of the two that go on
  });
}

int threads_of_process() {
  const std::filesystem::directory_iterator all("/proc/self/task");
  return static_cast<int>(std::distance(begin(all), end(all)));
}

enum class fault { none, throws, throws_in_flight, returns, ends_before_shrink, aborts, stalls };

/// Runs calls on `ranks` ranks of which some fail, perhaps several times. All that do not fail make all calls.
void run_with_faults(rank_t ranks, std::mt19937& random, bool stalls) {
  constexpr int calls = 6;
  struct plan {
    fault what = fault::none;
    int at = 0;
  };
  std::vector<plan> plans(static_cast<std::size_t>(ranks));
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const int healthy = below(ranks);
  for (rank_t r = 0; r < ranks; ++r) {
    if (r != healthy && below(3) > 0)
      plans[static_cast<std::size_t>(r)] = {static_cast<fault>(below(stalls ? 7 : 6)), below(calls)};
  }
  std::vector<char> complete(plans.size()), refused(plans.size());
  spar::thread_group group{ranks};
  const auto program = [&](spar::threads& world) {
    const rank_t id = world.rank();
    plan mine = plans[static_cast<std::size_t>(id)];
    spar::threads* net = &world;
    world.set_deadline(stalls ? 0.5 : 60);
    std::uint64_t left = bit(ranks) - 1;
    std::uint64_t call = 0;
    bool is_agreed = true;
    while (call < calls) {
      const bool fails = mine.what != fault::none && static_cast<int>(call) >= mine.at;
      try {
        if (fails && mine.what == fault::throws) throw death();
        if (fails && mine.what == fault::returns) return;
        if (fails && mine.what == fault::stalls) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
        if (fails && mine.what == fault::aborts) spar::abort(*net, "a reason");
        if (fails && (mine.what == fault::stalls || mine.what == fault::aborts)) mine.what = fault::none;
        std::vector<float> x(20'000, 1.0F);
        auto in_flight = spar::start_allreduce(*net, std::span(x), spar::ring{});
        if (fails && mine.what == fault::throws_in_flight) throw death();
        in_flight.wait();
        EXPECT_EQ(x.back(), static_cast<float>(net->size()));
        if (!is_agreed) { // a rank may have completed one call more than others
          std::vector<std::uint64_t> least{call};
          spar::allreduce(*net, least, spar::ring{}, spar::minimum{});
          call = least[0];
          is_agreed = true;
        }
        const std::uint64_t now = members(*net, id);
        EXPECT_EQ(now & ~left, 0U) << "a rank came back";
        left = now;
        ++call;
      } catch (const spar::error&) {
        if (mine.what == fault::ends_before_shrink) return;
        try {
          net = &net->shrink();
          is_agreed = false;
        } catch (const spar::peer_failed&) {
          refused[static_cast<std::size_t>(id)] = 1;
          return;
        }
      }
    }
    complete[static_cast<std::size_t>(id)] = 1;
  };
  try {
    group.run(program);
  } catch (const death&) {
  }
  int ended = 0;
  for (std::size_t r = 0; r < plans.size(); ++r) {
    ended += complete[r];
    if (stalls) {
      EXPECT_TRUE(complete[r] || refused[r] || plans[r].what != fault::none) << r;
    } else {
      EXPECT_FALSE(refused[r]) << r;
      EXPECT_TRUE(complete[r] || plans[r].what != fault::none) << r;
      EXPECT_TRUE(complete[r] || plans[r].what != fault::aborts) << r;
    }
  }
  EXPECT_TRUE(stalls || ended > 0);
}

TEST(shrink, after_random_faults) {
  const int before = threads_of_process();
  std::mt19937 random(3);
  for (int run = 0; run < (is_full() ? 1000 : 100) && !testing::Test::HasFailure(); ++run) {
    SCOPED_TRACE(testing::Message() << "run " << run);
    run_with_faults(2 + static_cast<rank_t>(random() % 7), random, run % 50 == 0);
  }
  EXPECT_EQ(threads_of_process(), before);
}

} // namespace
} // namespace spar_test
