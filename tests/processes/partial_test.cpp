// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The invariants of partial collectives over processes under random delays: with a progress thread, and with ranks that
// call progress() while they compute.
#include "support/partial_rounds.hpp"
#include "support/processes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace spar_test {
namespace {

constexpr marked_calls marked{.calls = 10};

/// All rounds and the drain, as this rank sees them.
template <class Of, class Participation>
std::vector<round_seen> rounds_of(communicator& net, const Participation& who, std::uint64_t seed, bool threaded) {
  std::optional<spar::progress_thread<communicator>> progress;
  if (threaded) progress.emplace(net);
  std::mt19937_64 random(seed * 1000 + static_cast<std::uint64_t>(net.rank()));
  std::exponential_distribution<double> delay(2e3);
  const std::size_t n = marked.dimension(net.size());
  auto reduce = spar::partial_allreduce<Of>(net, n, who);
  std::vector<round_seen> rounds;
  std::vector<number> x(n);
  for (std::uint64_t t = 1; t <= marked.calls + 1; ++t) {
    const bool last = t > marked.calls;
    const double until = now() + delay(random);
    while (now() < until) {
      if (threaded)
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      else
        reduce.progress();
    }
    if constexpr (std::is_same_v<Of, number>) {
      std::fill(x.begin(), x.end(), 0);
      if (!last) x[marked.place(net.rank(), t)] = 1;
      const auto by = last ? reduce.drain(std::span(x)) : reduce(std::span(x));
      rounds.push_back(seen_of(x, by, net.size()));
    } else {
      const std::array<std::uint32_t, 1> at{last ? 0 : static_cast<std::uint32_t>(marked.place(net.rank(), t))};
      const std::array<number, 1> one{1};
      const auto own = spar::sparse_view(n, std::span(at).first(last ? 0 : 1), std::span(one).first(last ? 0 : 1));
      const auto result = last ? reduce.drain(own) : reduce(own);
      result.sum.to_dense(std::span(x), spar::sum{});
      rounds.push_back(seen_of(x, result.by, net.size()));
    }
  }
  return rounds;
}

/// Rank 0's rounds, on every rank.
std::vector<round_seen> of_rank_0(const std::vector<round_seen>& mine) {
  std::vector<round_seen> theirs = mine;
  for (round_seen& s : theirs) {
    take_from(0, std::span(s.sum));
    take_from(0, std::span(s.marks));
    take_from(0, std::span(s.staleness));
  }
  return theirs;
}

template <class Of, class Participation>
void check(const Participation& who, spar::rank_t at_least) {
  communicator net(meeting());
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const auto rounds = rounds_of<Of>(net, who, seed, seed % 2 == 0);
    ASSERT_EQ(rounds.size(), marked.calls + 1);
    EXPECT_EQ(rounds, of_rank_0(rounds));
    for (const spar::rank_t fresh : check_all_rounds(marked, rounds, net.size())) EXPECT_GE(fresh, at_least);
  }
}

TEST(processes_partial, solo_keeps_every_call_once) {
  check<number>(spar::solo{}, 1);
  check<spar::sparse_stream<number>>(spar::solo{}, 1);
}

TEST(processes_partial, majority_keeps_every_call_once) {
  check<number>(spar::majority{}, 1);
  check<spar::sparse_stream<number>>(spar::majority{}, 1);
}

TEST(processes_partial, a_quorum_is_kept_in_every_round) {
  const spar::quorum who{.q = (number_of_processes() + 1) / 2};
  check<number>(who, who.q);
  check<spar::sparse_stream<number>>(who, who.q);
}

/// Rank 0 waits without spar until the others have completed all their rounds.
TEST(processes_partial, a_progress_thread_serves_the_others_while_its_rank_is_elsewhere) {
  communicator net(meeting());
  const spar::progress_thread progress(net);
  auto reduce = spar::partial_allreduce<number>(net, 1000);
  std::vector<number> x(1000);
  number total = 0;
  if (net.rank() == 0) wait_for_all();
  for (int round = 0; round < 20; ++round) {
    std::fill(x.begin(), x.end(), 1);
    reduce(std::span(x));
    total += x[999];
  }
  if (net.rank() != 0) wait_for_all();
  reduce.drain(std::span(x));
  EXPECT_EQ(total + x[999], 20 * net.size());
}

/// One rank aborts between its calls; every rank ends with an error that says so.
TEST(processes_partial, an_abort_ends_every_rank) {
  communicator world(meeting());
  if (world.size() < 2) return;
  for (const bool threaded : {false, true}) {
    communicator net = world.split(0, world.rank());
    std::optional<spar::progress_thread<communicator>> progress;
    if (threaded) progress.emplace(net);
    auto reduce = spar::partial_allreduce<number>(net, 50'000, spar::quorum{.q = net.size()});
    std::vector<number> x(50'000, 1);
    std::string text;
    try {
      reduce(std::span(x));
      if (net.rank() == 1) spar::abort(net, "out of luck");
      for (int round = 0; round < 3; ++round) reduce(std::span(x));
    } catch (const spar::peer_failed& e) {
      text = e.what();
    }
    EXPECT_NE(text.find("out of luck"), std::string::npos) << text;
  }
}

} // namespace
} // namespace spar_test
