// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Verdicts against known distributions, and the bootstrap's interval against its exact distribution.
#include "../../tools/spar_perf/machine.hpp"
#include "../../tools/spar_perf/verdict.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
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
  int undecided = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const pairs x(20, 1, 0.1, random);
    undecided += perf::compare_paired(x.first, x.second, seed).text() == "cannot tell" ? 1 : 0;
  }
  EXPECT_GE(undecided, 485); // 97 %; the interval promises 99 %, and 495 are expected
}

TEST(Verdict, FiveSlowerPerCentAreFound) {
  std::mt19937_64 random(8);
  int slower = 0, faster = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const pairs x(40, 1.05, 0.03, random);
    slower += perf::compare_paired(x.first, x.second, seed).text() == "slower" ? 1 : 0;
    faster += perf::compare_paired(x.second, x.first, seed).text() == "faster" ? 1 : 0;
  }
  EXPECT_GE(slower, 190);
  EXPECT_GE(faster, 190);
}

/// The probability that the median of a resample of n values, n odd, is at most the k-th smallest value.
double at_most(int k, int n) {
  double sum = 0;
  const double p = static_cast<double>(k) / n;
  for (int i = (n + 1) / 2; i <= n; ++i) {
    sum += std::exp(std::lgamma(n + 1.0) - std::lgamma(i + 1.0) - std::lgamma(n - i + 1.0)) * std::pow(p, i) *
           std::pow(1 - p, n - i);
  }
  return sum;
}

TEST(Verdict, TheIntervalIsTheBootstraps) {
  for (const int n : {7, 25, 101}) {
    std::vector<double> x, ones(static_cast<std::size_t>(n), 1.0);
    for (int i = 1; i <= n; ++i) x.push_back(i);
    std::shuffle(x.begin(), x.end(), std::mt19937_64(3));
    const auto v = perf::compare_paired(x, ones, 5);
    EXPECT_EQ(v.ratio, (n + 1) / 2);
    // The ends are the smallest and largest values that 0.5 % of the resamples reach, up to the chance of resampling.
    const int low = static_cast<int>(v.lowest), high = static_cast<int>(v.highest);
    EXPECT_GT(at_most(low, n), 0.002);
    EXPECT_LT(at_most(low - 1, n), 0.010);
    EXPECT_GT(1 - at_most(high - 1, n), 0.002);
    EXPECT_LT(1 - at_most(high, n), 0.010);
  }
}

TEST(Verdict, OfFewIterationsHasNoBounds) {
  const std::vector<double> slow(5, 2.0), fast(5, 1.0);
  const auto v = perf::compare_paired(slow, fast, 1);
  EXPECT_EQ(v.ratio, 2);
  EXPECT_EQ(v.lowest, 0);
  EXPECT_EQ(v.highest, std::numeric_limits<double>::infinity());
  EXPECT_EQ(v.text(), "cannot tell");
  const std::vector<double> six_slow(6, 2.0), six_fast(6, 1.0);
  EXPECT_EQ(perf::compare_paired(six_slow, six_fast, 1).text(), "slower");
}

TEST(Verdict, TwoRunsOfDifferentLengths) {
  std::mt19937_64 random(9);
  std::normal_distribution<double> noise(1, 0.02);
  std::vector<double> now(50), before(30);
  for (double& x : now) x = 0.9 * noise(random);
  for (double& x : before) x = noise(random);
  const auto v = perf::compare_runs(now, before, 1);
  EXPECT_NEAR(v.ratio, 0.9, 0.02);
  EXPECT_LT(v.lowest, v.ratio);
  EXPECT_GT(v.highest, v.ratio);
  EXPECT_EQ(v.text(), "faster");
  EXPECT_EQ(perf::compare_runs(now, now, 1).text(), "cannot tell");
}

TEST(Verdict, TheSameSeedGivesTheSameInterval) {
  std::mt19937_64 random(10);
  const pairs x(20, 1.02, 0.1, random);
  const auto a = perf::compare_paired(x.first, x.second, 4), b = perf::compare_paired(x.first, x.second, 4);
  EXPECT_EQ(a.lowest, b.lowest);
  EXPECT_EQ(a.highest, b.highest);
}

TEST(Machine, ABusyMachineAndAChangedClockAreReported) {
  perf::machine quiet;
  quiet.cores = 4, quiet.load = 1.9, quiet.megahertz = 3000;
  EXPECT_TRUE(perf::disturbances(quiet, quiet).empty());
  perf::machine busy = quiet;
  busy.load = 2.1;
  EXPECT_EQ(perf::disturbances(busy, quiet).at(0),
            "other programs were running: 2.1 processes in the minute before, on 4 cores");
  perf::machine slow = quiet;
  slow.megahertz = 2800;
  EXPECT_EQ(perf::disturbances(quiet, slow).at(0), "the clock changed from 3000 to 2800 MHz");
  slow.megahertz = 0; // unknown
  EXPECT_TRUE(perf::disturbances(quiet, slow).empty());
  const perf::machine here = perf::this_machine();
  EXPECT_GE(here.cores, 1);
  EXPECT_FALSE(here.system.empty());
  EXPECT_FALSE(here.compiler.empty());
}

} // namespace
