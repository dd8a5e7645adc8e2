// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Verdicts on known distributions, and the exact interval against the binomial distribution.
#include "../../tools/spar_perf/machine.hpp"
#include "../../tools/spar_perf/verdict.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace {

/// Times of two systems in alternation: noise with a heavy tail, and disturbances that affect both.
struct pairs {
  std::vector<double> first, second;

  pairs(std::size_t count, double ratio, double noise, std::mt19937_64& random) {
    std::lognormal_distribution<double> heavy(0, noise);
    std::bernoulli_distribution disturbed(0.3);
    for (std::size_t i = 0; i < count; ++i) {
      const double together = disturbed(random) ? 3 : 1;
      first.push_back(ratio * together * heavy(random));
      second.push_back(together * heavy(random));
    }
  }
};

TEST(Verdict, ASystemAgainstItselfIsUndecided) {
  std::mt19937_64 random(7);
  for (const std::size_t count : {8U, 9U, 20U, 51U}) {
    int undecided = 0;
    for (int run = 0; run < 2000; ++run) {
      const pairs x(count, 1, 0.1, random);
      undecided += spar::perf::compare_paired(x.first, x.second).text() == "cannot tell" ? 1 : 0;
    }
    EXPECT_GE(undecided, 1970) << count; // at least 1980 are expected, with a standard deviation of at most 4.5
  }
}

TEST(Verdict, ASystemSlowerByFivePerCentIsFound) {
  std::mt19937_64 random(8);
  int slower = 0, faster = 0;
  for (int run = 0; run < 200; ++run) {
    const pairs x(40, 1.05, 0.03, random);
    slower += spar::perf::compare_paired(x.first, x.second).text() == "slower" ? 1 : 0;
    faster += spar::perf::compare_paired(x.second, x.first).text() == "faster" ? 1 : 0;
  }
  EXPECT_GE(slower, 190);
  EXPECT_GE(faster, 190);
}

/// The ratios 1 to n in a random order, against ones.
spar::perf::verdict of_numbers(std::size_t n) {
  std::vector<double> x(n), ones(n, 1.0);
  std::iota(x.begin(), x.end(), 1.0);
  std::shuffle(x.begin(), x.end(), std::mt19937_64(3));
  return spar::perf::compare_paired(x, ones);
}

TEST(Verdict, TheIntervalIsThatOfTheSignTest) {
  // The values between which the interval lies, from tables of the binomial distribution.
  const std::vector<std::array<double, 3>> table{{8, 1, 8}, {10, 1, 10}, {20, 4, 17}, {50, 16, 35}, {100, 37, 64}};
  for (const auto& [n, lowest, highest] : table) {
    const auto v = of_numbers(static_cast<std::size_t>(n));
    EXPECT_EQ(v.ratio, (n + 1) / 2);
    EXPECT_EQ(v.lowest, lowest) << n;
    EXPECT_EQ(v.highest, highest) << n;
  }
  const auto many = of_numbers(100'001); // near the normal distribution
  EXPECT_NEAR(many.lowest, 50'001 - 2.5758 * std::sqrt(100'001) / 2, 3);
}

/// Latencies of two systems with late ranks: an iteration's time depends on who is late, in both systems alike.
struct late_pairs {
  std::vector<double> first, second;

  late_pairs(std::size_t count, double ratio, double noise, std::mt19937_64& random) {
    std::exponential_distribution<double> late(1);
    std::lognormal_distribution<double> heavy(0, noise);
    for (std::size_t i = 0; i < count; ++i) {
      const double together = 0.1 + late(random);
      first.push_back(ratio * together * heavy(random));
      second.push_back(together * heavy(random));
    }
  }
};

TEST(Verdict, OfMeansIsThatOfPairs) {
  std::mt19937_64 random(9);
  int undecided = 0, slower = 0;
  for (int run = 0; run < 300; ++run) {
    const auto seed = static_cast<std::uint64_t>(run);
    const late_pairs same(50, 1, 0.1, random), slow(50, 1.15, 0.1, random);
    undecided += spar::perf::compare_means(same.first, same.second, seed).text() == "cannot tell" ? 1 : 0;
    slower += spar::perf::compare_means(slow.first, slow.second, seed).text() == "slower" ? 1 : 0;
  }
  EXPECT_GE(undecided, 288); // 96 %: the bootstrap promises 99 % for many iterations only
  EXPECT_GE(slower, 270); // without the pairs, the standard deviation of a ratio would be 0.2, and none would be found
}

TEST(Verdict, OfMeansHasTheRatioOfTheMeans) {
  const std::vector<double> times{1, 1, 1, 1, 1, 1, 1, 9}, reference{1, 1, 1, 1, 1, 1, 1, 1};
  const auto v = spar::perf::compare_means(times, reference, 1);
  EXPECT_EQ(v.ratio, 2);
  EXPECT_EQ(v.lowest, 1); // a resample without the long iteration, which one of three is
  EXPECT_GT(v.highest, 3);
  EXPECT_EQ(v.text(), "cannot tell");
  const auto few = spar::perf::compare_means(std::span(times).first(7), std::span(reference).first(7), 1);
  EXPECT_EQ(few.lowest, 0);
  EXPECT_TRUE(std::isinf(few.highest));
}

TEST(Verdict, OfFewIterationsHasNoBounds) {
  const std::vector<double> slow(7, 2.0), fast(7, 1.0);
  const auto v = spar::perf::compare_paired(slow, fast);
  EXPECT_EQ(v.ratio, 2);
  EXPECT_EQ(v.lowest, 0);
  EXPECT_EQ(v.highest, std::numeric_limits<double>::infinity());
  EXPECT_EQ(v.text(), "cannot tell");
  const std::vector<double> eight_slow(8, 2.0), eight_fast(8, 1.0);
  EXPECT_EQ(spar::perf::compare_paired(eight_slow, eight_fast).text(), "slower");
  EXPECT_EQ(spar::perf::compare_runs(slow, eight_fast, 1).text(), "cannot tell");
  EXPECT_EQ(spar::perf::compare_runs(eight_slow, eight_fast, 1).text(), "slower");
}

TEST(Verdict, TwoRunsOfDifferentLengths) {
  std::mt19937_64 random(9);
  std::normal_distribution<double> noise(1, 0.02);
  std::vector<double> now(50), before(30);
  for (double& x : now) x = 0.9 * noise(random);
  for (double& x : before) x = noise(random);
  const auto v = spar::perf::compare_runs(now, before, 1);
  EXPECT_NEAR(v.ratio, 0.9, 0.02);
  EXPECT_LT(v.lowest, v.ratio);
  EXPECT_GT(v.highest, v.ratio);
  EXPECT_EQ(v.text(), "faster");
  EXPECT_EQ(spar::perf::compare_runs(now, now, 1).text(), "cannot tell");
}

TEST(Verdict, TwoEqualRunsAreUndecided) {
  std::mt19937_64 random(10);
  std::lognormal_distribution<double> noise(0, 0.1);
  int undecided = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    std::vector<double> now(20), before(30);
    for (double& x : now) x = noise(random);
    for (double& x : before) x = noise(random);
    undecided += spar::perf::compare_runs(now, before, seed).text() == "cannot tell" ? 1 : 0;
  }
  EXPECT_GE(undecided, 290); // 97 %: the bootstrap promises 99 % for many iterations only
}

TEST(Machine, ABusyMachineAndAChangedClockAreReported) {
  spar::perf::machine quiet;
  quiet.cores = 4, quiet.load = 1.9, quiet.megahertz = 3000;
  EXPECT_TRUE(spar::perf::disturbances(quiet, quiet).empty());
  spar::perf::machine busy = quiet;
  busy.load = 2.1;
  EXPECT_EQ(
      spar::perf::disturbances(busy, quiet).at(0),
      "the load average of the minute before the run was 2.1 on 4 cores: other programs, or a build that has just "
      "ended, may disturb times");
  spar::perf::machine slow = quiet;
  slow.megahertz = 2800;
  EXPECT_EQ(spar::perf::disturbances(quiet, slow).at(0), "the clock changed from 3000 to 2800 MHz");
  slow.megahertz = 0; // unknown
  EXPECT_TRUE(spar::perf::disturbances(quiet, slow).empty());
  const spar::perf::machine here = spar::perf::this_machine();
  EXPECT_GE(here.cores, 1);
  EXPECT_FALSE(here.system.empty());
  EXPECT_FALSE(here.compiler.empty());
}

} // namespace
