// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The invariants of partial collectives (eager-SGD, lemma 5.1) under random delays: every call is in one round and in
// one only, every rank gets every round's result in order and learns the same participants. SPAR_SCHEDULES: seeds of
// each kind, 100 unless set.
#include "support/ranks.hpp"

#include <spar/system/partial_allreduce.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace spar_test {
namespace {

constexpr std::uint64_t calls = 12;
using number = std::int64_t;

/// What one rank saw of one round.
struct seen {
  std::vector<number> sum;
  std::vector<spar::presence> marks;
  std::vector<std::uint64_t> staleness;
  friend bool operator==(const seen&, const seen&) = default;
};

seen seen_of(std::vector<number> sum, const spar::participants& who, spar::rank_t ranks) {
  seen s{std::move(sum), {}, {}};
  for (spar::rank_t r = 0; r < ranks; ++r) {
    s.marks.push_back(who[r]);
    s.staleness.push_back(who.staleness(r));
  }
  return s;
}

/// All ranks' rounds, the last of which is the drain.
struct history {
  explicit history(spar::rank_t ranks, std::uint64_t bound)
      : rounds(static_cast<std::size_t>(ranks)), made(static_cast<std::size_t>(ranks)), tau(bound) {}
  std::vector<std::vector<seen>> rounds; // [rank][round]
  std::vector<std::uint64_t> made;       // calls so far
  std::uint64_t tau;
};

/// Element `rank * calls + t` is 1 in call t + 1 of a rank: a result shows which calls are in it.
std::size_t place(spar::rank_t rank, std::uint64_t call) {
  return static_cast<std::size_t>(rank) * calls + static_cast<std::size_t>(call - 1);
}

template <class Participation, bool Sparse>
struct program {
  history* all;
  Participation who;
  std::uint64_t seed;
  double skew; // mean seconds between calls

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    std::mt19937_64 random(seed * 1000 + static_cast<std::uint64_t>(net.rank()));
    const spar::rank_t p = net.size();
    const std::size_t n = static_cast<std::size_t>(p) * calls;
    auto& mine = all->rounds[static_cast<std::size_t>(net.rank())];
    auto& made = all->made[static_cast<std::size_t>(net.rank())];
    std::exponential_distribution<double> delay(1 / (skew * (1 + static_cast<double>(random() % 5))));
    if constexpr (Sparse) {
      auto reduce =
          spar::partial_allreduce<spar::stream<number>>(net, n, who, spar::sparcml{}, spar::sum{}, {all->tau});
      const auto keep = [&](const auto& result) {
        std::vector<number> sum(n);
        result.sum.to_dense(std::span(sum));
        mine.push_back(seen_of(std::move(sum), result.by, p));
      };
      for (std::uint64_t t = 1; t <= calls; ++t) {
        if constexpr (requires { net.sleep(1.0); }) co_await net.sleep(delay(random));
        ++made;
        const std::array<std::uint32_t, 1> index{static_cast<std::uint32_t>(place(net.rank(), t))};
        const std::array<number, 1> value{1};
        auto call = reduce.start(spar::sparse_view(n, index, value));
        auto result = co_await std::move(call);
        keep(result);
        check_tau(t);
      }
      auto rest = reduce.start_drain(spar::stream_view<number, std::uint32_t>::sparse(n, {}, {}));
      auto result = co_await std::move(rest);
      keep(result);
    } else {
      auto reduce = spar::partial_allreduce<number>(net, n, who, spar::recursive_doubling{}, spar::sum{}, {all->tau});
      std::vector<number> x(n);
      for (std::uint64_t t = 1; t <= calls; ++t) {
        if constexpr (requires { net.sleep(1.0); }) co_await net.sleep(delay(random));
        ++made;
        std::fill(x.begin(), x.end(), 0);
        x[place(net.rank(), t)] = 1;
        auto call = reduce.start(std::span(x));
        const auto result = co_await std::move(call);
        mine.push_back(seen_of(x, result, p));
        check_tau(t);
      }
      auto rest = reduce.start_drain(std::span(x));
      const auto result = co_await std::move(rest);
      mine.push_back(seen_of(x, result, p));
    }
  }

  /// Nobody is further ahead of anybody than tau rounds; only where all ranks are on one thread.
  void check_tau(std::uint64_t round) const {
    if (seed == 0) return;
    for (const std::uint64_t others : all->made) EXPECT_GE(others + all->tau, round) << "seed " << seed;
  }
};

/// Checks all that a history must keep; the number of fresh ranks in each round.
std::vector<spar::rank_t> check(const history& all, spar::rank_t ranks) {
  const auto& rounds = all.rounds[0];
  std::vector<spar::rank_t> fresh;
  EXPECT_EQ(rounds.size(), calls + 1);
  for (const auto& others : all.rounds) EXPECT_TRUE(others == rounds);
  std::vector<std::uint64_t> next(static_cast<std::size_t>(ranks), 1); // the first call that is in no round yet
  for (std::uint64_t r = 1; r <= rounds.size(); ++r) {
    const seen& s = rounds[r - 1];
    fresh.push_back(0);
    for (spar::rank_t rank = 0; rank < ranks; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      const std::uint64_t oldest = next[at];
      for (std::uint64_t t = 1; t <= calls; ++t) {
        const number there = s.sum[place(rank, t)];
        EXPECT_TRUE(there == 0 || there == 1) << there;
        if (there == 0) continue;
        EXPECT_EQ(t, next[at]) << "round " << r << ", rank " << rank; // in order, none left out, none twice
        EXPECT_LE(t, r);
        ++next[at];
      }
      const bool none = next[at] == oldest;
      const bool has_this = !none && next[at] == r + 1 && r <= calls;
      const auto expected = none ? spar::presence::absent : has_this ? spar::presence::fresh : spar::presence::stale;
      EXPECT_EQ(s.marks[at], expected) << "round " << r << ", rank " << rank;
      EXPECT_EQ(s.staleness[at], none ? 0 : r - oldest) << "round " << r << ", rank " << rank;
      if (has_this) ++fresh.back();
    }
  }
  for (const std::uint64_t n : next) EXPECT_EQ(n, calls + 1); // nothing is lost
  fresh.pop_back();
  return fresh;
}

std::uint64_t seeds() {
  const char* wanted = std::getenv("SPAR_SCHEDULES");
  return wanted != nullptr ? std::stoull(wanted) : 100;
}

template <bool Sparse, class Participation>
std::vector<spar::rank_t> simulate(spar::rank_t ranks, const Participation& who, std::uint64_t seed,
                                   std::uint64_t tau) {
  history all(ranks, tau);
  const double skew = seed % 3 == 0 ? 1e-4 : 1e-6;
  run_sim(ranks, program<Participation, Sparse>{&all, who, seed, skew}, random_order(seed, seed % 2 == 0));
  return check(all, ranks);
}

constexpr std::array<std::uint64_t, 4> bounds{64, 3, 1, 0};

TEST(partial, solo_keeps_every_call_once) {
  for (std::uint64_t seed = 1; seed <= seeds(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const auto ranks = static_cast<spar::rank_t>(1 + seed % 17);
    const std::uint64_t tau = bounds[seed / 17 % bounds.size()];
    for (const auto& fresh :
         {simulate<false>(ranks, spar::solo{}, seed, tau), simulate<true>(ranks, spar::solo{}, seed, tau)}) {
      for (const spar::rank_t f : fresh) ASSERT_GE(f, tau == 0 ? ranks : 1);
    }
    ASSERT_FALSE(HasFailure());
  }
}

TEST(partial, majority_keeps_every_call_once) {
  for (std::uint64_t seed = 1; seed <= seeds(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const auto ranks = static_cast<spar::rank_t>(1 + seed % 17);
    const std::uint64_t tau = bounds[seed / 17 % bounds.size()];
    const spar::majority who{seed};
    for (const auto& fresh : {simulate<false>(ranks, who, seed, tau), simulate<true>(ranks, who, seed, tau)}) {
      for (const spar::rank_t f : fresh) ASSERT_GE(f, tau == 0 ? ranks : 1);
    }
    ASSERT_FALSE(HasFailure());
  }
}

TEST(partial, a_quorum_is_kept_in_every_round) {
  for (std::uint64_t seed = 1; seed <= seeds(); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    const auto ranks = static_cast<spar::rank_t>(1 + seed % 17);
    const auto q = static_cast<spar::rank_t>(1 + seed % static_cast<std::uint64_t>(ranks));
    const std::uint64_t tau = bounds[seed / 17 % bounds.size()];
    const spar::quorum who{q, seed};
    for (const auto& fresh : {simulate<false>(ranks, who, seed, tau), simulate<true>(ranks, who, seed, tau)}) {
      for (const spar::rank_t f : fresh) ASSERT_GE(f, tau == 0 ? ranks : q);
    }
    ASSERT_FALSE(HasFailure());
  }
}

TEST(partial, everyone_is_in_every_round_of_everyone) {
  for (std::uint64_t seed = 1; seed <= seeds() / 10; ++seed) {
    const auto ranks = static_cast<spar::rank_t>(1 + seed % 17);
    for (const spar::rank_t f : simulate<false>(ranks, spar::everyone{}, seed, 64)) ASSERT_EQ(f, ranks);
    for (const spar::rank_t f : simulate<true>(ranks, spar::everyone{}, seed, 64)) ASSERT_EQ(f, ranks);
  }
}

template <bool Sparse, class Participation>
void on_every_transport(const Participation& who) {
  for (const mode where : all_modes) {
    for (const spar::rank_t ranks : all_ranks) {
      SCOPED_TRACE(testing::Message() << where << ", P = " << ranks);
      history all(ranks, 64);
      run(where, ranks, program<Participation, Sparse>{&all, who, 0, 1e-5});
      check(all, ranks);
      ASSERT_FALSE(testing::Test::HasFailure());
    }
  }
}

TEST(partial, on_every_transport_and_number_of_ranks) {
  on_every_transport<false>(spar::everyone{});
  on_every_transport<false>(spar::solo{});
  on_every_transport<false>(spar::majority{});
  on_every_transport<false>(spar::quorum{1});
  on_every_transport<true>(spar::everyone{});
  on_every_transport<true>(spar::solo{});
  on_every_transport<true>(spar::majority{});
  on_every_transport<true>(spar::quorum{1});
}

} // namespace
} // namespace spar_test
