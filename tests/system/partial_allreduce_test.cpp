// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Partial allreduces: which ranks a round waits for, how many take part in a round, the cost of starting a round, the
// end, and bad input.
#include "support/ranks.hpp"

#include <spar/system/partial_allreduce.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace spar_test {
namespace {

using namespace std::chrono_literals;

static_assert(spar::participation<spar::everyone>);
static_assert(spar::participation<spar::solo>);
static_assert(spar::participation<spar::majority>);
static_assert(spar::participation<spar::quorum>);
/// Lacks a rule for who starts a round.
struct nobody {
  static constexpr std::string_view name = "nobody";
  static constexpr void validate(spar::rank_t) noexcept {}
  void options(auto&& f) const { f("seed", 9); }
};
static_assert(!spar::participation<nobody>);
static_assert(!spar::participation<int>);

// --- participants of a round ---

/// A rank calls (rank + round) mod P + 1 steps after the round began, so that calls are far apart and their order
/// changes.
template <class Participation>
struct skewed {
  Participation who;
  std::uint64_t rounds;
  std::uint64_t* fresh;
  std::uint64_t* messages; // total

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    spar::partial_options options;
    options.tau = spar::partial_options::unlimited;
    auto reduce = spar::partial_allreduce<float>(net, 4, who, spar::recursive_doubling{}, spar::sum{}, options);
    std::vector<float> x(4);
    for (std::uint64_t round = 0; round < rounds; ++round) {
      const double step = 1 + static_cast<double>((static_cast<std::uint64_t>(net.rank()) + round) %
                                                  static_cast<std::uint64_t>(net.size()));
      const double until = 100.0 * static_cast<double>(round) + step;
      co_await net.sleep(until - net.now());
      auto call = reduce.start(std::span(x));
      const auto by = co_await std::move(call);
      if (net.rank() == 0) *fresh += static_cast<std::uint64_t>(by.fresh());
    }
    *messages += reduce.activations_sent();
    auto rest = reduce.start_drain(std::span(x));
    co_await std::move(rest);
  }
};

template <class Participation>
double mean_fresh(const Participation& who, spar::rank_t ranks, std::uint64_t rounds, std::uint64_t* messages) {
  std::uint64_t fresh = 0;
  *messages = 0;
  run_sim(ranks, skewed<Participation>{who, rounds, &fresh, messages});
  return static_cast<double>(fresh) / static_cast<double>(rounds);
}

TEST(partial_allreduce, half_of_the_ranks_are_in_the_mean_round_of_majority) {
  for (const spar::rank_t ranks : {3, 8, 32}) {
    std::uint64_t messages = 0;
    const double mean = mean_fresh(spar::majority{}, ranks, 2000, &messages);
    EXPECT_NEAR(mean, (ranks + 1) / 2.0, 0.05 * (ranks + 1) / 2.0) << ranks;
  }
}

TEST(partial_allreduce, one_rank_is_in_a_round_of_solo_and_the_quorum_in_one_of_a_quorum) {
  for (const spar::rank_t ranks : {1, 2, 3, 7, 8}) {
    std::uint64_t messages = 0;
    EXPECT_EQ(mean_fresh(spar::solo{}, ranks, 100, &messages), 1.0);
    // The broadcast uses each edge at most once and reaches every other rank.
    const auto edges = static_cast<std::uint64_t>(std::bit_width(static_cast<std::uint32_t>(ranks - 1)));
    EXPECT_GE(messages, 100 * static_cast<std::uint64_t>(ranks - 1));
    EXPECT_LE(messages, 100 * std::min((std::uint64_t{1} << edges) - 1, static_cast<std::uint64_t>(ranks) * edges));
    for (spar::rank_t q = 1; q <= ranks; ++q) {
      EXPECT_EQ(mean_fresh(spar::quorum{q}, ranks, 20, &messages), q) << "P = " << ranks;
    }
    EXPECT_EQ(mean_fresh(spar::everyone{}, ranks, 20, &messages), ranks);
    EXPECT_EQ(messages, 0U);
  }
}

struct in_step {
  std::vector<std::uint64_t>* messages;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    auto reduce = spar::partial_allreduce<float>(net, 4);
    std::vector<float> x(4, 1.0F);
    for (int round = 0; round < 10; ++round) {
      co_await net.sleep(1.0 * (round + 1) - net.now());
      auto call = reduce.start(std::span(x));
      const auto by = co_await std::move(call);
      EXPECT_EQ(by.fresh(), net.size());
    }
    (*messages)[static_cast<std::size_t>(net.rank())] = reduce.activations_sent();
    auto rest = reduce.start_drain(std::span(x));
    co_await std::move(rest);
  }
};

TEST(partial_allreduce, without_skew_each_rank_sends_log_p_activations) {
  for (const spar::rank_t ranks : all_ranks) {
    std::vector<std::uint64_t> messages(static_cast<std::size_t>(ranks));
    run_sim(ranks, in_step{&messages});
    const auto edges = static_cast<std::uint64_t>(std::bit_width(static_cast<std::uint32_t>(ranks - 1)));
    for (const std::uint64_t m : messages) EXPECT_EQ(m, 10 * edges) << ranks;
  }
}

// --- 4 of 64 ranks are late in each step ---

/// A step takes 1 second, and half a second more on the four ranks that are late: ranks 0 to 3 in the first step, ranks
/// 4 to 7 in the second, and so on.
constexpr spar::rank_t of_64 = 64;
constexpr std::uint64_t late_steps = 32;
double step_of(spar::rank_t rank, std::uint64_t step) {
  return static_cast<std::uint64_t>(rank) / 4 == (step - 1) % 16 ? 1.5 : 1;
}

struct four_late {
  std::vector<spar::rank_t>* fresh;    // in each step
  std::vector<std::int64_t>* included; // calls of each rank in all results

  template <class Net, class Participation>
  spar::task<void> train(Net& net, Participation who) const {
    auto reduce = spar::partial_allreduce<std::int64_t>(net, of_64, who, spar::recursive_doubling{});
    std::vector<std::int64_t> x(of_64);
    const auto note = [&] {
      for (std::size_t r = 0; r < x.size() && net.rank() == 0; ++r) (*included)[r] += x[r];
    };
    for (std::uint64_t step = 1; step <= late_steps; ++step) {
      co_await net.sleep(step_of(net.rank(), step));
      std::fill(x.begin(), x.end(), 0);
      x[static_cast<std::size_t>(net.rank())] = 1;
      auto call = reduce.start(std::span(x));
      const auto by = co_await std::move(call);
      if (net.rank() == 0) fresh->push_back(by.fresh());
      note();
    }
    auto rest = reduce.start_drain(std::span(x));
    co_await std::move(rest);
    note();
  }
};

template <class Participation>
struct late_program {
  four_late steps;
  Participation who;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    return steps.train(net, who);
  }
};

/// Runs all steps over a network without latency, and compares the fresh ranks of each step and the duration with those
/// of ranks that call at exact times. `begins(step, calls)` is the time at which a round starts, given the sorted times
/// of all calls and those by rank.
template <class Participation, class Begins>
std::vector<spar::rank_t> check_four_late(const Participation& who, Begins begins) {
  std::vector<spar::rank_t> fresh, expected;
  std::vector<std::int64_t> included(of_64);
  spar::simulator_options network;
  network.latency = 0;
  network.bandwidth = 1e30;
  const double seconds = run_sim(of_64, late_program<Participation>{{&fresh, &included}, who}, network);

  std::vector<double> now(of_64);
  for (std::uint64_t step = 1; step <= late_steps; ++step) {
    for (spar::rank_t r = 0; r < of_64; ++r) now[static_cast<std::size_t>(r)] += step_of(r, step);
    std::vector<double> sorted = now;
    std::sort(sorted.begin(), sorted.end());
    const double start = begins(step, now, sorted);
    expected.push_back(
        static_cast<spar::rank_t>(std::count_if(now.begin(), now.end(), [&](double t) { return t <= start; })));
    for (double& t : now) t = std::max(t, start);
  }
  EXPECT_EQ(fresh, expected);
  EXPECT_NEAR(seconds, *std::max_element(now.begin(), now.end()), 1e-9);
  EXPECT_EQ(included, std::vector<std::int64_t>(of_64, late_steps)); // each call once
  return fresh;
}

TEST(partial_allreduce, four_late_ranks_of_64_are_counted_exactly) {
  const auto everyone =
      check_four_late(spar::everyone{}, [](auto, const auto&, const auto& sorted) { return sorted.back(); });
  EXPECT_EQ(everyone, std::vector<spar::rank_t>(late_steps, of_64));
  // With solo, four more ranks are behind after each step, until all have been late once.
  const auto solo = check_four_late(spar::solo{}, [](auto, const auto&, const auto& sorted) { return sorted.front(); });
  for (std::uint64_t step = 1; step <= late_steps; ++step) {
    EXPECT_EQ(solo[step - 1], step % 16 == 0 ? of_64 : of_64 - 4 * static_cast<spar::rank_t>(step % 16)) << step;
  }
  const spar::majority drawn{};
  check_four_late(drawn, [&](std::uint64_t step, const auto& now, const auto&) {
    spar::rank_t first = 0;
    while (!drawn.initiates(first, step, of_64)) ++first;
    return now[static_cast<std::size_t>(first)];
  });
  check_four_late(spar::quorum{.q = 61}, [](auto, const auto&, const auto& sorted) { return sorted[60]; });
}

// --- the reduction ---

struct averaged {
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    auto reduce = spar::partial_allreduce<double>(net, 3, spar::everyone{}, spar::ring{}, spar::average{});
    std::vector<double> x{1.0 * net.rank(), 2.0, -4.0};
    auto call = reduce.start(std::span(x));
    const auto by = co_await std::move(call);
    EXPECT_EQ(by.round(), 1U);
    EXPECT_EQ(x, (std::vector<double>{0.5 * (net.size() - 1), 2.0, -4.0}));
    auto largest =
        spar::partial_allreduce<std::int32_t>(net, 1, spar::quorum{net.size()}, spar::cheapest{}, spar::maximum{});
    std::vector<std::int32_t> y{-net.rank()};
    auto second = largest.start(std::span(y));
    co_await std::move(second);
    EXPECT_EQ(y[0], 0);
    auto nothing = spar::partial_allreduce<float>(net, 0, spar::everyone{});
    auto empty = nothing.start(std::span<float>{});
    const auto all = co_await std::move(empty);
    EXPECT_EQ(all.fresh(), net.size());
    auto end = largest.start_drain(std::span(y));
    const auto last = co_await std::move(end);
    EXPECT_EQ(last.absent(), net.size());
    EXPECT_EQ(y[0], std::numeric_limits<std::int32_t>::lowest()); // neutral: no values were held back
    auto mean_end = reduce.start_drain(std::span(x));
    co_await std::move(mean_end);
    auto no_end = nothing.start_drain(std::span<float>{});
    co_await std::move(no_end);
  }
};

TEST(partial_allreduce, any_operation_and_several_at_a_time) {
  for (const mode where : all_modes) {
    for (const spar::rank_t ranks : all_ranks) {
      SCOPED_TRACE(testing::Message() << where << ", P = " << ranks);
      run(where, ranks, averaged{});
    }
  }
}

/// An absent rank sends only headers, no entries.
struct idle_rank {
  std::vector<std::uint64_t>* bytes;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    auto reduce = spar::partial_allreduce<spar::sparse_stream<float>>(net, 1000, spar::solo{}, spar::ssar_split{});
    const std::vector<std::uint32_t> indices{1, 600};
    const std::vector<float> values{1.0F, 2.0F};
    if (net.rank() != 0) co_await net.sleep(1.0);
    auto call = reduce.start(spar::sparse_view(1000, indices, values));
    const auto result = co_await std::move(call);
    EXPECT_EQ(result.by.fresh(), 1);
    EXPECT_EQ(result.by[0], spar::presence::fresh);
    EXPECT_EQ(result.by.absent(), net.size() - 1);
    EXPECT_EQ(result.sum.count(), 2U);
    (*bytes)[static_cast<std::size_t>(net.rank())] = call.statistics().bytes_sent;
    auto rest = reduce.start_drain(spar::stream_view<float, std::uint32_t>::sparse(1000, {}, {}));
    const auto late = co_await std::move(rest);
    EXPECT_EQ(late.by.stale(), net.size() - 1);
    EXPECT_EQ(late.sum.values()[0], static_cast<float>(net.size() - 1));
    EXPECT_EQ(late.by.staleness(), net.size() > 1 ? 1U : 0U);
  }
};

TEST(partial_allreduce, of_streams_an_absent_rank_sends_headers_only) {
  for (const spar::rank_t ranks : {2, 4, 8}) {
    std::vector<std::uint64_t> bytes(static_cast<std::size_t>(ranks));
    run_sim(ranks, idle_rank{&bytes});
    // The marks take 4 bytes from each rank to each other; in the allgather, rank 0 also sends two entries of 8 bytes
    // with their counts.
    EXPECT_GT(bytes[0], bytes.back());
  }
}

// --- with threads ---

TEST(partial_allreduce, a_progress_thread_serves_the_others_while_its_rank_computes) {
  std::atomic<int> through = 0;
  spar::thread_group group{4};
  group.run([&](spar::threads& net) {
    const spar::progress_thread progress(net);
    auto reduce = spar::partial_allreduce<std::int64_t>(net, 100);
    std::vector<std::int64_t> x(100);
    std::int64_t total = 0;
    if (net.rank() == 0) {
      const auto give_up = std::chrono::steady_clock::now() + 20s;
      while (through < 3 && std::chrono::steady_clock::now() < give_up) std::this_thread::sleep_for(1ms);
      EXPECT_EQ(through, 3); // the others did not need this rank's application
    }
    for (int round = 0; round < 20; ++round) {
      std::fill(x.begin(), x.end(), std::int64_t{1});
      reduce(std::span(x));
      total += x[99];
    }
    ++through;
    reduce.drain(std::span(x));
    total += x[99];
    EXPECT_EQ(total, 80);
  });
}

TEST(partial_allreduce, a_rank_without_a_progress_thread_serves_the_others_by_progress) {
  std::atomic<bool> through = false;
  spar::thread_group group{3};
  group.run([&](spar::threads& net) {
    auto reduce = spar::partial_allreduce<float>(net, 10);
    std::vector<float> x(10, 1.0F);
    if (net.rank() != 1) {
      while (!through) reduce.progress();
    }
    reduce(std::span(x));
    if (net.rank() == 1) {
      EXPECT_EQ(x[0], 1.0F);
      through = true;
    }
    reduce.drain(std::span(x));
    EXPECT_EQ(x[0], 2.0F);
  });
}

TEST(partial_allreduce, progress_says_whether_a_round_is_under_way) {
  std::atomic<bool> under_way = false;
  spar::thread_group group{2};
  group.run([&](spar::threads& net) {
    auto reduce = spar::partial_allreduce<float>(net, 10);
    std::vector<float> x(10, 1.0F);
    if (net.rank() == 0) {
      EXPECT_FALSE(reduce.progress());
      auto call = reduce.start(std::span(x));
      EXPECT_TRUE(reduce.progress()); // the round needs the other rank
      under_way = true;
      call.wait();
      EXPECT_FALSE(reduce.progress());
    } else {
      while (!under_way) std::this_thread::sleep_for(1ms);
      reduce(std::span(x));
    }
    reduce.drain(std::span(x));
  });
}

TEST(partial_allreduce, no_rank_is_further_ahead_than_tau) {
  spar::thread_group group{2};
  std::atomic<int> rounds = 0;
  group.run([&](spar::threads& net) {
    const spar::progress_thread progress(net);
    spar::partial_options options;
    options.tau = 3;
    auto reduce = spar::partial_allreduce<float>(net, 10, spar::solo{}, spar::cheapest{}, spar::sum{}, options);
    std::vector<float> x(10, 1.0F);
    if (net.rank() == 1) {
      std::this_thread::sleep_for(100ms);
      EXPECT_EQ(rounds, 3); // rank 0 waits for this rank's first call
    }
    for (int round = 0; round < 10; ++round) {
      reduce(std::span(x));
      if (net.rank() == 0) ++rounds;
    }
    reduce.drain(std::span(x));
  });
}

TEST(partial_allreduce, no_deadline_runs_while_a_round_awaits_its_activation) {
  for (const bool served : {false, true}) {
    spar::thread_group group{2};
    group.run([&](spar::threads& net) {
      std::unique_ptr<spar::progress_thread<spar::threads>> progress;
      if (served) progress = std::make_unique<spar::progress_thread<spar::threads>>(net);
      net.set_deadline(0.05);
      auto reduce = spar::partial_allreduce<float>(net, 10, spar::quorum{2});
      std::vector<float> x(10, 1.0F);
      if (net.rank() == 1) std::this_thread::sleep_for(300ms);
      EXPECT_EQ(reduce(std::span(x)).fresh(), 2);
      reduce.drain(std::span(x));
    });
  }
}

// --- the end ---

TEST(partial_allreduce, made_and_destroyed_again_and_again) {
  for (const bool drained : {false, true}) {
    spar::thread_group group{3};
    group.run([&](spar::threads& net) {
      const spar::progress_thread progress(net);
      for (int round = 0; round < 50; ++round) {
        auto reduce = spar::partial_allreduce<float>(net, 10, spar::everyone{});
        std::vector<float> x(10, 1.0F);
        if (round % 3 != 0) reduce(std::span(x));
        if (drained) reduce.drain(std::span(x));
      }
    });
  }
}

template <class Error, class F>
void expect_error(const std::string& part, F f) {
  try {
    f();
    ADD_FAILURE() << "no error: " << part;
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

/// Returns the error with which each rank's program ended.
template <class Program>
std::vector<std::string> errors_of(spar::rank_t ranks, Program program) {
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  spar::thread_group group{ranks};
  group.run([&](spar::threads& net) {
    try {
      program(net);
    } catch (const spar::mismatch& e) {
      errors[static_cast<std::size_t>(net.rank())] = std::string("mismatch: ") + e.what();
    } catch (const spar::peer_failed& e) {
      errors[static_cast<std::size_t>(net.rank())] = std::string("peer_failed: ") + e.what();
    }
  });
  return errors;
}

TEST(partial_allreduce, ranks_that_drain_after_different_numbers_of_calls_end_in_an_error) {
  for (const bool leaves : {false, true}) {
    const auto errors = errors_of(3, [&](spar::threads& net) {
      const spar::progress_thread progress(net);
      auto reduce = spar::partial_allreduce<float>(net, 10, spar::majority{});
      std::vector<float> x(10, 1.0F);
      for (int round = 0; round < (net.rank() == 1 ? 3 : 4); ++round) reduce(std::span(x));
      if (!leaves || net.rank() != 1) reduce.drain(std::span(x));
    });
    for (const auto& e : errors) {
      if (leaves && e.empty()) continue; // rank 1 has left without an error
      EXPECT_NE(e.find("3 calls"), std::string::npos) << e;
      EXPECT_NE(e.find("4"), std::string::npos) << e;
    }
    EXPECT_NE(errors[0] + errors[2], "");
  }
}

TEST(partial_allreduce, a_rank_that_dies_takes_the_others_along) {
  const auto errors = errors_of(4, [&](spar::threads& net) {
    const spar::progress_thread progress(net);
    auto reduce = spar::partial_allreduce<float>(net, 10, spar::quorum{4});
    std::vector<float> x(10, 1.0F);
    reduce(std::span(x));
    if (net.rank() == 2) spar::abort(net, "out of luck");
    reduce(std::span(x));
  });
  for (const auto& e : errors) EXPECT_NE(e.find("out of luck"), std::string::npos) << e;
}

TEST(partial_allreduce, ranks_that_disagree_find_it_out) {
  const auto n = errors_of(2, [](spar::threads& net) {
    auto reduce = spar::partial_allreduce<float>(net, 10 + static_cast<std::uint64_t>(net.rank()));
    std::vector<float> x(10 + static_cast<std::size_t>(net.rank()));
    reduce(std::span(x));
  });
  EXPECT_NE((n[0] + n[1]).find("mismatch: ranks disagree on the dimension n"), std::string::npos) << n[0] << n[1];
  const auto q = errors_of(2, [](spar::threads& net) {
    auto reduce = spar::partial_allreduce<float>(net, 10, spar::quorum{1 + net.rank()});
    std::vector<float> x(10);
    reduce(std::span(x));
    reduce(std::span(x));
  });
  EXPECT_NE((q[0] + q[1]).find("mismatch: ranks disagree on"), std::string::npos) << q[0] << q[1];
  EXPECT_NE((q[0] + q[1]).find("has partial with participation.q=2"), std::string::npos) << q[0] << q[1];
  // Each rank would wait for the other to start the round.
  const auto seeds = errors_of(2, [](spar::threads& net) {
    const std::uint64_t others_turn = net.rank() == 0 ? 3 : 1;
    ASSERT_EQ(spar::majority{others_turn}.initiates(net.rank(), 1, 2), false);
    auto reduce = spar::partial_allreduce<float>(net, 10, spar::majority{others_turn});
    std::vector<float> x(10);
    reduce(std::span(x));
  });
  EXPECT_NE((seeds[0] + seeds[1]).find("mismatch: ranks disagree on"), std::string::npos) << seeds[0];
  // The note of rank 0 has arrived when rank 1 constructs its object.
  std::atomic<bool> is_constructed = false;
  const auto late = errors_of(2, [&](spar::threads& net) {
    while (net.rank() == 1 && !is_constructed) std::this_thread::yield();
    net.progress(false);
    auto reduce = spar::partial_allreduce<float>(net, 10 + static_cast<std::uint64_t>(net.rank()));
    is_constructed = true;
    std::vector<float> x(10 + static_cast<std::size_t>(net.rank()));
    reduce(std::span(x));
  });
  EXPECT_NE(late[1].find("mismatch: ranks disagree on the dimension n"), std::string::npos) << late[1];
}

// --- bad input ---

TEST(partial_allreduce, bad_input_is_reported_and_changes_nothing) {
  spar::thread_group group{1};
  spar::threads& net = group.rank(0);
  for (const int q : {-1, 0, 2}) {
    expect_error<spar::invalid_argument>(
        "the quorum is " + std::to_string(q) + "; expected 1 to 1, the number of ranks",
        [&] { auto reduce = spar::partial_allreduce<float>(net, 10, spar::quorum{q}); });
  }
  auto reduce = spar::partial_allreduce<float>(net, 10);
  std::vector<float> x(11, 1.0F);
  expect_error<spar::invalid_argument>("was called with dimension 11; expected 10", [&] { reduce(std::span(x)); });
  expect_error<spar::invalid_argument>("was called with dimension 11; expected 10",
                                       [&] { reduce.drain(std::span(x)); });
  x.resize(10);
  EXPECT_EQ(reduce(std::span(x)).round(), 1U);
  reduce.drain(std::span(x));
  expect_error<spar::invalid_argument>("has been drained", [&] { reduce(std::span(x)); });
  expect_error<spar::invalid_argument>("has been drained", [&] { reduce.drain(std::span(x)); });
}

TEST(partial_allreduce, a_bad_stream_is_refused_before_the_call_counts) {
  spar::thread_group group{1};
  auto reduce = spar::partial_allreduce<spar::sparse_stream<float>>(group.rank(0), 10);
  const std::vector<std::uint32_t> indices{5, 3};
  const std::vector<float> values{1.0F, 2.0F};
  expect_error<spar::invalid_argument>("indices must ascend", [&] { reduce(spar::sparse_view(10, indices, values)); });
  EXPECT_EQ(reduce.calls(), 0U);
  const auto none = spar::stream_view<float, std::uint32_t>::sparse(10, {}, {});
  EXPECT_EQ(reduce(none).by.round(), 1U);
  reduce.drain(none);
}

/// A call whose round fails ends only after the round has released the values, which may be buffers of messages.
TEST(partial_allreduce, values_are_free_once_a_failed_call_has_ended) {
  for (int round = 0; round < 20; ++round) {
    const auto errors = errors_of(3, [&](spar::threads& net) {
      const auto program = [](spar::threads& its) -> spar::task<void> {
        auto reduce = spar::partial_allreduce<float>(its, 100'000, spar::solo{}, spar::ring{});
        for (int call = 0; call < 5; ++call) {
          std::vector<float> x(100'000, 1.0F); // destroyed by the error while other ranks may still be in the round
          if (its.rank() == 1 && call == 2) spar::abort(its, "enough");
          auto pending = reduce.start(std::span(x));
          co_await std::move(pending);
        }
      };
      spar::run_until_done(net, program(net));
    });
    for (const auto& e : errors) EXPECT_NE(e.find("enough"), std::string::npos) << e;
  }
}

TEST(partial_allreduce, may_be_asked_while_a_progress_thread_works) {
  spar::thread_group group{2};
  group.run([&](spar::threads& net) {
    const spar::progress_thread progress(net);
    auto reduce = spar::partial_allreduce<float>(net, 10);
    std::vector<float> x(10, 1.0F);
    std::uint64_t before = 0;
    for (std::uint64_t round = 1; round <= 200; ++round) {
      reduce(std::span(x));
      EXPECT_EQ(reduce.calls(), round);
      EXPECT_GE(reduce.activations_sent(), before);
      before = reduce.activations_sent();
    }
    EXPECT_LE(before, 200U); // one edge, once per round
    net.set_deadline(60);
    reduce.drain(std::span(x));
  });
}

TEST(partial_allreduce, what_the_algorithm_does_not_take_is_reported_before_the_call_counts) {
  spar::thread_group group{1};
  spar::threads& net = group.rank(0);
  std::vector<float> x(10, 1.0F);
  expect_error<spar::invalid_argument>("k is 11", [&] { // the constructor throws
    auto selects = spar::partial_allreduce<float>(net, 10, spar::solo{}, spar::selector::exact_topk{.k = 11});
  });
  EXPECT_FALSE(net.dead());
  auto selects = spar::partial_allreduce<float>(net, 10, spar::solo{}, spar::selector::exact_topk{.k = 1});
  EXPECT_EQ(selects(std::span(x)).round(), 1U);
  EXPECT_EQ(x, (std::vector<float>{1, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  selects.drain(std::span(x));
  x.assign(10, 1.0F);
  auto checked = spar::partial_allreduce<float>(net, 10, spar::solo{},
                                                spar::topka<float>({.select = {.density = 0.5}}, {.reject_nan = true}));
  x[3] = std::numeric_limits<float>::quiet_NaN();
  expect_error<spar::invalid_argument>("index 3 is NaN", [&] { checked(std::span(x)); });
  EXPECT_EQ(checked.calls(), 0U);
  EXPECT_FALSE(net.dead());
}

TEST(partial_allreduce, one_call_at_a_time) {
  spar::thread_group group{2};
  group.run([&](spar::threads& net) {
    auto reduce = spar::partial_allreduce<float>(net, 10, spar::quorum{2});
    std::vector<float> x(10, 1.0F);
    auto call = reduce.start(std::span(x));
    std::vector<float> y(10, 1.0F);
    if (!call.done()) {
      expect_error<spar::invalid_argument>("has not ended", [&] { reduce(std::span(y)); });
    }
    EXPECT_EQ(call.wait().fresh(), 2);
    EXPECT_EQ(x[9], 2.0F);
    reduce.drain(std::span(x));
  });
}

} // namespace
} // namespace spar_test
