// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Named collectives are matched by name, in whatever order the ranks start them.
#include "support/ranks.hpp"
#include "support/streams.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <latch>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace spar_test {
namespace {

/// Starts many collectives, sparse and dense, several times, on each rank in a different random order.
struct shuffled {
  std::size_t calls;
  std::uint64_t seed;
  std::vector<std::vector<float>>* results; // of each rank: the sums of all calls, one after the other

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    std::mt19937_64 random(seed * 1000 + static_cast<std::uint64_t>(net.rank()));
    std::vector<std::size_t> order(calls);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::vector<std::vector<float>> x(calls);
    std::vector<float>& mine = (*results)[static_cast<std::size_t>(net.rank())];
    for (int round = 0; round < 2; ++round) {
      std::shuffle(order.begin(), order.end(), random);
      std::vector<spar::pending<Net, void>> dense;
      std::vector<spar::pending<Net, spar::sparse_stream<float>>> sparse;
      std::vector<std::size_t> sparse_calls;
      for (const std::size_t c : order) {
        x[c].assign(1 + c % 7 * 300, static_cast<float>(c + 1));
        const spar::named name{"layer"};
        const std::string text = std::string(name.text) + std::to_string(c);
        if (c % 3 != 0) {
          dense.push_back(spar::start_allreduce(net, spar::named{text}, std::span<float>(x[c])));
        } else {
          sparse.push_back(spar::start_allreduce(net, spar::named{text}, spar::dense_view(x[c]), spar::sparcml{}));
          sparse_calls.push_back(c);
        }
      }
      // One unnamed call in between.
      float one = 1;
      auto unnamed = spar::start_allreduce(net, std::span<float>(&one, 1));
      co_await std::move(unnamed);
      EXPECT_EQ(one, static_cast<float>(net.size()));
      for (auto& call : dense) co_await std::move(call);
      for (std::size_t s = 0; s < sparse.size(); ++s) {
        const auto sum = co_await std::move(sparse[s]);
        sum.to_dense(std::span<float>(x[sparse_calls[s]]), spar::sum{});
      }
    }
    for (const auto& sum : x) mine.insert(mine.end(), sum.begin(), sum.end());
  }
};

void expect_sums(const std::vector<std::vector<float>>& results, std::size_t calls) {
  std::vector<float> expected;
  for (std::size_t c = 0; c < calls; ++c) {
    expected.insert(expected.end(), 1 + c % 7 * 300, static_cast<float>((c + 1) * results.size()));
  }
  for (const auto& mine : results) ASSERT_EQ(mine, expected);
}

TEST(named, two_hundred_in_flight_in_another_order_on_each_rank) {
  for (const mode where : all_modes) {
    for (const spar::rank_t ranks : {1, 2, 3, 4, 5}) {
      SCOPED_TRACE(testing::Message() << where << ", P = " << ranks);
      std::vector<std::vector<float>> results(static_cast<std::size_t>(ranks));
      run(where, ranks, shuffled{200, 1, &results});
      ASSERT_NO_FATAL_FAILURE(expect_sums(results, 200));
    }
  }
}

TEST(named, two_hundred_in_flight_in_many_random_orders) {
  const mode some[] = {mode::threads, mode::sim_synchronous};
  for (const mode where : is_full() ? std::span<const mode>(all_modes) : some) {
    for (std::uint64_t seed = 0; seed < (is_full() ? 100 : 25); ++seed) {
      SCOPED_TRACE(testing::Message() << where << ", seed " << seed);
      std::vector<std::vector<float>> results(3);
      run(where, 3, shuffled{200, seed, &results});
      ASSERT_NO_FATAL_FAILURE(expect_sums(results, 200));
    }
  }
}

TEST(named, a_name_in_flight_is_refused_and_nothing_is_lost) {
  std::latch tried(2); // the call of rank 0 cannot end before both ranks have arrived
  spar::thread_group group(2);
  group.run([&](spar::threads& net) {
    std::vector<float> x(10, 1.0F);
    std::vector<float> y(10, 1.0F);
    net.set_deadline(20); // ends the test if the second call is accepted: no peer would answer that call
    if (net.rank() == 1) tried.arrive_and_wait();
    auto first = spar::start_allreduce(net, spar::named{"a"}, std::span(x));
    if (net.rank() == 0) {
      try {
        (void)spar::start_allreduce(net, spar::named{"a"}, std::span(y));
        ADD_FAILURE() << "no error";
      } catch (const spar::invalid_argument& e) {
        EXPECT_NE(std::string(e.what()).find("the previous call with this name has not ended"), std::string::npos)
            << e.what();
      }
      tried.arrive_and_wait();
    }
    first.wait();
    EXPECT_EQ(x[0], 2.0F);
  });
}

TEST(named, two_thousand_and_forty_eight_names_and_no_more) {
  spar::thread_group group(1);
  spar::threads& net = group.rank(0);
  float x = 1;
  for (int name = 0; name < 2048; ++name) {
    spar::start_allreduce(net, spar::named{std::to_string(name)}, std::span<float>(&x, 1)).wait();
  }
  spar::start_allreduce(net, spar::named{"7"}, std::span<float>(&x, 1)).wait();
  try {
    (void)spar::start_allreduce(net, spar::named{"another"}, std::span<float>(&x, 1));
    ADD_FAILURE() << "no error";
  } catch (const spar::invalid_argument& e) {
    EXPECT_NE(std::string(e.what()).find("a communicator has at most 2048"), std::string::npos) << e.what();
  }
}

TEST(named, ranks_that_disagree_about_a_named_call) {
  spar::thread_group group(3);
  EXPECT_THROW(group.run([](spar::threads& net) {
    std::vector<float> x(net.rank() == 2 ? 11 : 10, 1.0F);
    spar::start_allreduce(net, spar::named{"gradient"}, std::span(x)).wait();
  }),
               spar::mismatch);
}

TEST(named, a_name_that_rank_0_never_starts) {
  spar::thread_group group(2);
  group.run([](spar::threads& net) {
    if (net.rank() == 0) {
      while (!net.dead()) net.progress(false);
      return;
    }
    net.set_deadline(0.05);
    std::vector<float> x(10, 1.0F);
    auto call = spar::start_allreduce(net, spar::named{"mine"}, std::span(x));
    try {
      call.wait();
      ADD_FAILURE() << "no error";
    } catch (const spar::timeout& e) {
      EXPECT_NE(std::string(e.what()).find("rank 0 to start the collective named mine"), std::string::npos);
    }
  });
}

/// The same test in virtual time.
struct name_that_rank_0_never_starts {
  int* timeouts;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    float x = 1;
    if (net.rank() == 0) { // waits in another call, without a deadline
      auto other = spar::start_allreduce(net, spar::named{"other"}, std::span<float>(&x, 1));
      try {
        co_await std::move(other);
      } catch (const spar::peer_failed&) {
      }
      co_return;
    }
    net.set_deadline(2.5);
    auto call = spar::start_allreduce(net, spar::named{"mine"}, std::span<float>(&x, 1));
    try {
      co_await std::move(call);
    } catch (const spar::timeout&) {
      ++*timeouts;
    }
    EXPECT_NEAR(net.now(), 2.5, 1e-9);
  }
};

template <class Program>
spar::task<void> through_a_decorator(spar::sim& inner, Program program) {
  spar::counting net(inner);
  co_await program(net);
}

TEST(named, a_name_that_rank_0_never_starts_in_virtual_time) {
  int timeouts = 0;
  const name_that_rank_0_never_starts program{&timeouts};
  run_sim<spar::any_transport>(2, program);
  EXPECT_EQ(timeouts, 1);
  spar::simulator engine(2);
  engine.run([&](spar::sim& inner) { return through_a_decorator(inner, program); });
  EXPECT_EQ(timeouts, 2);
}

TEST(named, as_many_as_can_be_in_flight_without_a_name_leave_room_for_one_with_a_name) {
  constexpr std::size_t unnamed = spar::max_in_flight / 2;
  spar::thread_group group(2);
  group.run([](spar::threads& net) {
    std::vector<float> x(unnamed + 1, 1.0F);
    std::vector<spar::pending<spar::threads, void>> calls;
    const auto start_named = [&] {
      calls.push_back(spar::start_allreduce(net, spar::named{"last"}, std::span(x).subspan(unnamed)));
    };
    if (net.rank() == 0) start_named();
    for (std::size_t c = 0; c < unnamed; ++c) calls.push_back(spar::start_allreduce(net, std::span(x).subspan(c, 1)));
    if (net.rank() == 1) {
      start_named();
      calls.back().wait();
    }
    while (!calls.empty()) calls.pop_back();
    EXPECT_EQ(x, std::vector<float>(unnamed + 1, 2.0F));
  });
}

TEST(named, on_a_dead_communicator) {
  spar::thread_group group(3);
  group.run([](spar::threads& net) {
    float x = 1;
    if (net.rank() == 1) spar::abort(net, "enough");
    while (!net.dead()) net.progress(true);
    for (const char* name : {"a", "b", "a"}) {
      try {
        spar::start_allreduce(net, spar::named{name}, std::span<float>(&x, 1)).wait();
        ADD_FAILURE() << "no error";
      } catch (const spar::peer_failed& e) {
        EXPECT_NE(std::string(e.what()).find("enough"), std::string::npos) << e.what();
      }
    }
  });
}

} // namespace
} // namespace spar_test
