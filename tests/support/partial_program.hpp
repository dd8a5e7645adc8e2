// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Makes the calls of a partial allreduce with random delays, and records the rounds of all ranks.
#pragma once

#include "support/partial_rounds.hpp"
#include "support/ranks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace spar_test {

inline constexpr marked_calls marked{.calls = 12};

/// The rounds of all ranks; the last round is the drain.
struct history {
  explicit history(spar::rank_t ranks, std::uint64_t bound)
      : rounds(static_cast<std::size_t>(ranks)), made(static_cast<std::size_t>(ranks)), tau(bound) {}
  std::vector<std::vector<round_seen>> rounds; // [rank][round]
  std::vector<std::uint64_t> made;             // calls so far, by rank
  std::uint64_t tau;
};

/// `Of` is `number` for dense values, `sparse_stream<number>` for streams.
template <class Of, class Algorithm, class Participation>
struct program {
  history* all;
  Participation who;
  Algorithm algorithm;
  std::uint64_t seed;
  double skew; // mean seconds between calls

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    std::mt19937_64 random(seed * 1000 + static_cast<std::uint64_t>(net.rank()));
    const spar::rank_t p = net.size();
    const std::size_t n = marked.dimension(p);
    auto& mine = all->rounds[static_cast<std::size_t>(net.rank())];
    auto& made = all->made[static_cast<std::size_t>(net.rank())];
    std::exponential_distribution<double> delay(1 / (skew * (1 + static_cast<double>(random() % 5))));
    auto reduce = spar::partial_allreduce<Of>(net, n, who, algorithm, spar::sum{}, {all->tau});
    std::vector<number> x(n);
    for (std::uint64_t t = 1; t <= marked.calls + 1; ++t) {
      const bool last = t > marked.calls;
      if constexpr (requires { net.sleep(1.0); }) {
        if (!last) co_await net.sleep(delay(random));
      }
      if (!last) ++made;
      if constexpr (std::is_same_v<Of, number>) {
        std::fill(x.begin(), x.end(), 0);
        if (!last) x[marked.place(net.rank(), t)] = 1;
        auto call = last ? reduce.start_drain(std::span(x)) : reduce.start(std::span(x));
        const auto result = co_await std::move(call);
        mine.push_back(seen_of(x, result, p));
      } else {
        const std::array<std::uint32_t, 1> place{last ? 0 : static_cast<std::uint32_t>(marked.place(net.rank(), t))};
        const std::array<number, 1> value{1};
        const auto own =
            spar::sparse_view(n, std::span(place).first(last ? 0 : 1), std::span(value).first(last ? 0 : 1));
        auto call = last ? reduce.start_drain(own) : reduce.start(own);
        auto result = co_await std::move(call);
        result.sum.to_dense(std::span(x), spar::sum{});
        mine.push_back(seen_of(x, result.by, p));
      }
      if (!last) check_tau(t);
    }
  }

  /// Checks that no rank is more than tau rounds ahead of another. Only possible if all ranks run on one thread.
  void check_tau(std::uint64_t round) const {
    if (seed == 0) return;
    for (const std::uint64_t others : all->made) EXPECT_GE(others + all->tau, round) << "seed " << seed;
  }
};

/// Checks all invariants of a history; returns the number of fresh ranks in each round.
inline std::vector<spar::rank_t> check(const history& all, spar::rank_t ranks) {
  for (const auto& others : all.rounds) EXPECT_TRUE(others == all.rounds[0]);
  return check_all_rounds(marked, all.rounds[0], ranks);
}

using sparse_number = spar::sparse_stream<number>;

template <class Of>
using usual = std::conditional_t<std::is_same_v<Of, number>, spar::recursive_doubling, spar::sparcml>;

template <class Of, class Participation, class Algorithm = usual<Of>>
std::vector<spar::rank_t> simulate(spar::rank_t ranks, const Participation& who, std::uint64_t seed, std::uint64_t tau,
                                   const Algorithm& algorithm = {}) {
  history all(ranks, tau);
  const double skew = seed % 3 == 0 ? 1e-4 : 1e-6;
  const program<Of, Algorithm, Participation> calls{&all, who, algorithm, seed, skew};
  run_sim(ranks, calls, random_order(seed, seed % 2 == 0));
  return check(all, ranks);
}

inline constexpr std::array<std::uint64_t, 4> bounds{64, 3, 1, 0};

} // namespace spar_test
