// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A thread makes progress while the application is busy elsewhere.
#include "support/ranks.hpp"

#include <spar/transport/faulty.hpp>
#include <spar/transport/tracing.hpp>

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

#include <time.h>

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
        if (net.rank() != 0) { // their calls need rank 0 in every round
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
    std::vector<spar::sparse_stream<float>> kept;
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
    kept.back().to_dense(std::span(x), spar::sum{});
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
    if (net.rank() == 1) {
      while (!net.dead()) std::this_thread::sleep_for(1ms);
      return;
    }
    std::vector<float> x(10, 1.0F);
    auto call = spar::start_allreduce(net, std::span(x));
    while (!net.dead()) std::this_thread::sleep_for(1ms);
    EXPECT_THROW(call.wait(), spar::timeout);
  });
}

TEST(progress_thread, ends_a_call_whose_deadline_is_set_while_it_sleeps) {
  spar::thread_group group{2};
  group.run([](spar::threads& net) {
    const spar::progress_thread progress(net);
    if (net.rank() == 1) {
      while (!net.dead()) std::this_thread::sleep_for(1ms);
      return;
    }
    std::this_thread::sleep_for(100ms);
    net.set_deadline(0.1); // shorter than the default of 600 s
    std::vector<float> x(10, 1.0F);
    auto call = spar::start_allreduce(net, std::span(x));
    const double start = net.now();
    while (!net.dead() && net.now() < start + 10) std::this_thread::sleep_for(10ms); // calls nothing of spar
    EXPECT_LT(net.now() - start, 5);
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
    spar::run_until_done(net, awaiting(net, &x));
    ADD_FAILURE() << "no error";
  } catch (const spar::error& e) {
    EXPECT_NE(std::string(e.what()).find("progress thread"), std::string::npos) << e.what();
  }
}

TEST(progress_thread, an_abort_ends_what_both_threads_have_in_flight) {
  for (int round = 0; round < 20; ++round) {
    spar::thread_group group{3};
    group.run([&](spar::threads& net) {
      const spar::progress_thread progress(net);
      std::vector<std::vector<float>> x(50, std::vector<float>(5000, 1.0F));
      std::vector<spar::pending<spar::threads, void>> calls;
      int ended = 0;
      try {
        for (auto& values : x) {
          if (net.rank() == 1 && calls.size() == 25) spar::abort(net, "enough");
          calls.push_back(spar::start_allreduce(net, std::span(values), spar::ring{}));
        }
      } catch (const spar::peer_failed&) {
      }
      for (auto& call : calls) {
        try {
          call.wait();
          ++ended;
        } catch (const spar::peer_failed& e) {
          EXPECT_NE(std::string(e.what()).find("enough"), std::string::npos) << e.what();
        }
      }
      EXPECT_LE(ended, 25); // the other ranks need rank 1
      EXPECT_TRUE(net.dead());
    });
  }
}

TEST(progress_thread, there_is_one_a_rank) {
  spar::thread_group group{1};
  spar::threads& net = group.rank(0);
  {
    const spar::progress_thread progress(net);
    try {
      const spar::progress_thread another(net);
      ADD_FAILURE() << "no error";
    } catch (const spar::invalid_argument& e) {
      EXPECT_NE(std::string(e.what()).find("already has a progress thread"), std::string::npos) << e.what();
    }
    float x = 1;
    spar::allreduce(net, std::span<float>(&x, 1));
  }
  const spar::progress_thread again(net);
}

double processor_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

TEST(progress_thread, after_it_has_gone_a_call_that_waits_sleeps_again) {
  spar::thread_group group{2};
  group.run([&](spar::threads& net) {
    {
      const spar::progress_thread progress(net);
    }
    float x = 1;
    if (net.rank() == 0) std::this_thread::sleep_for(500ms);
    const double begin = processor_seconds();
    spar::allreduce(net, std::span<float>(&x, 1));
    EXPECT_LT(processor_seconds() - begin, 0.25);
  });
}

static_assert(spar::shareable<spar::counting<spar::threads>>);
static_assert(spar::shareable<spar::tracing<spar::counting<spar::threads>>>);
static_assert(!spar::shareable<spar::counting<spar::sim>>);
static_assert(!spar::shareable<spar::faulty<spar::threads>>);
static_assert(spar::shareable<spar::counting<spar::any_transport>>);

template <class Inner>
void count_beside_a_progress_thread() {
  spar::thread_group group{2};
  group.run([&](spar::threads& rank) {
    Inner inner(rank);
    spar::counting<Inner> net(inner);
    const spar::progress_thread progress(net);
    std::vector<float> x(10, 1.0F);
    auto call = spar::start_allreduce(net, std::span(x), spar::recursive_doubling{});
    while (!call.done()) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(net.sent(1 - net.rank()).messages, 1U);
    EXPECT_EQ(x[9], 2.0F);
  });
}
TEST(progress_thread, beside_a_decorator) { count_beside_a_progress_thread<spar::counting<spar::threads>>(); }
TEST(progress_thread, beside_a_decorator_of_any_transport) { count_beside_a_progress_thread<spar::any_transport>(); }

TEST(progress_thread, is_refused_where_any_transport_wraps_the_simulator) {
  spar::simulator engine(1);
  spar::any_transport net(engine.rank(0));
  EXPECT_THROW(spar::progress_thread{net}, spar::invalid_argument);
}

} // namespace
} // namespace spar_test
