// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The indices at which spar_perf places nonzero entries.
#include "../../tools/spar_perf/patterns.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <numeric>
#include <set>
#include <vector>

namespace {

using spar::perf::pattern_kind;
using spar::perf::positions;
using spar::perf::workload;

constexpr pattern_kind kinds[] = {pattern_kind::uniform, pattern_kind::clustered, pattern_kind::identical,
                                  pattern_kind::disjoint, pattern_kind::zipf};

TEST(Patterns, HaveExactlyKAscendingIndicesBelowN) {
  for (const pattern_kind kind : kinds) {
    for (const std::uint64_t n : {1U, 2U, 63U, 64U, 65U, 1000U, 4099U}) {
      const int ranks = n < 3 ? 1 : 3;
      for (const std::uint64_t k : {std::uint64_t{0}, std::uint64_t{1}, n / 100, n / 20, n / 3, n / 2, n - n / 10, n}) {
        if (kind == pattern_kind::disjoint && k > n / static_cast<std::uint64_t>(ranks)) continue;
        const workload w{n, k, ranks, kind, 7};
        for (int r = 0; r < ranks; ++r) {
          const auto found = positions(w, r);
          ASSERT_EQ(found.size(), k) << n;
          EXPECT_TRUE(std::is_sorted(found.begin(), found.end()));
          EXPECT_EQ(std::adjacent_find(found.begin(), found.end()), found.end());
          EXPECT_LT(found.empty() ? 0 : found.back(), n);
        }
      }
    }
  }
}

TEST(Patterns, DependOnSeedAndRankAlone) {
  for (const pattern_kind kind : kinds) {
    const workload w{100000, 500, 4, kind, 1};
    workload other = w;
    other.seed = 2;
    EXPECT_EQ(positions(w, 2), positions(w, 2));
    EXPECT_NE(positions(w, 2), positions(other, 2));
    EXPECT_EQ(positions(w, 0) == positions(w, 1), kind == pattern_kind::identical);
  }
}

std::vector<double> gradient(const workload& w, int rank, int step, std::uint64_t first = 0) {
  std::vector<double> x(w.n - first);
  spar::perf::gradient(w, rank, step, first, x);
  return x;
}

double product(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}
double correlation(const std::vector<double>& a, const std::vector<double>& b) {
  return product(a, b) / std::sqrt(product(a, a) * product(b, b));
}
/// The fourth moment divided by the square of the second; a normal distribution has 3.
double kurtosis(std::vector<double> x) {
  for (double& v : x) v *= v;
  const double squares = std::accumulate(x.begin(), x.end(), 0.0);
  return product(x, x) * static_cast<double>(x.size()) / (squares * squares);
}

TEST(Patterns, GradientsDependOnSeedRankStepAndIndexAlone) {
  for (const pattern_kind kind : {pattern_kind::drift, pattern_kind::gaussian, pattern_kind::heavy_0,
                                  pattern_kind::heavy_50, pattern_kind::heavy_100}) {
    const workload w{10000, 500, 4, kind, 1};
    workload other = w;
    other.seed = 2;
    const auto x = gradient(w, 1, 7);
    EXPECT_EQ(gradient(w, 1, 7), x);
    EXPECT_NE(gradient(other, 1, 7), x);
    EXPECT_NE(gradient(w, 2, 7), x);
    EXPECT_NE(gradient(w, 1, 8), x);
    const auto later = gradient(w, 1, 7, 777);
    EXPECT_TRUE(std::equal(later.begin(), later.end(), x.begin() + 777));
    EXPECT_TRUE(is_gradient(kind) && positions(w, 1).empty());
  }
  for (const pattern_kind kind : kinds) EXPECT_FALSE(is_gradient(kind));
}

TEST(Patterns, GaussianValuesAreNormalAndIndependent) {
  constexpr std::uint64_t n = 100000;
  const workload w{n, 500, 2, pattern_kind::gaussian, 1};
  const auto x = gradient(w, 0, 0);
  EXPECT_NEAR(std::accumulate(x.begin(), x.end(), 0.0) / n, 0, 0.015);
  EXPECT_NEAR(product(x, x) / n, 1, 0.02);
  EXPECT_NEAR(kurtosis(x), 3, 0.08);
  EXPECT_NEAR(correlation(x, gradient(w, 1, 0)), 0, 0.015);
  EXPECT_NEAR(correlation(x, gradient(w, 0, 1)), 0, 0.015);
}

TEST(Patterns, HeavyTailsHaveAboutKEntriesOfWhichRanksShareAPart) {
  constexpr std::uint64_t n = 100000, k = 5000;
  const auto shared = [&](pattern_kind kind, int step) {
    const workload w{n, k, 2, kind, 1};
    const auto a = gradient(w, 0, 0), b = gradient(w, 1, step);
    std::uint64_t mine = 0, both = 0, signs = 0, large = 0;
    for (std::size_t i = 0; i < n; ++i) {
      mine += a[i] != 0 ? 1U : 0U;
      both += a[i] != 0 && b[i] != 0 ? 1U : 0U;
      signs += a[i] * b[i] > 0 ? 1U : 0U;
      large += std::abs(a[i]) > 2 ? 1U : 0U;
    }
    EXPECT_NEAR(static_cast<double>(mine), k, 350); // 5 sigma of a binomial distribution
    if (kind == pattern_kind::heavy_0) {
      EXPECT_NEAR(static_cast<double>(large), k / 16.0, 90);
    }
    EXPECT_EQ(signs == both, kind == pattern_kind::heavy_100 && step == 0);
    return static_cast<double>(both) / static_cast<double>(mine);
  };
  EXPECT_NEAR(shared(pattern_kind::heavy_0, 0), 0.05, 0.02) << "by chance";
  EXPECT_NEAR(shared(pattern_kind::heavy_50, 0), 0.5125, 0.04); // of the other half, 2.5 % by chance
  EXPECT_EQ(shared(pattern_kind::heavy_100, 0), 1);
  EXPECT_NEAR(shared(pattern_kind::heavy_100, 1), 0.05, 0.02) << "the shared indices change";
}

TEST(Patterns, DriftHasAHeavyTailAndASignalThatChangesSlowly) {
  constexpr std::uint64_t n = 100000;
  const workload w{n, 500, 2, pattern_kind::drift, 1};
  const auto x = gradient(w, 0, 0);
  // The mean square of the signal, a wave, is a third of its amplitudes' mean square, so the signal has a quarter of
  // the power.
  EXPECT_NEAR(correlation(x, gradient(w, 1, 0)), 0.25, 0.05);
  EXPECT_NEAR(correlation(x, gradient(w, 0, 1)), 0.25, 0.05);
  EXPECT_NEAR(correlation(x, gradient(w, 0, 64)), 0, 0.05);
  EXPECT_NEAR(correlation(x, gradient(w, 0, 128)), -0.25, 0.05);
  EXPECT_GT(kurtosis(x), 10);
}

TEST(Patterns, DisjointRanksShareNoIndex) {
  const workload w{1000, 200, 5, pattern_kind::disjoint, 3};
  std::set<std::uint64_t> all;
  for (int r = 0; r < 5; ++r) {
    for (const auto i : positions(w, r)) EXPECT_TRUE(all.insert(i).second);
  }
  EXPECT_EQ(all.size(), 1000U);
}

TEST(Patterns, ClusteredIndicesComeInRunsOf64) {
  const auto found = positions({1 << 20, 64 * 40 + 10, 2, pattern_kind::clustered, 3}, 1);
  std::size_t runs = 0;
  for (std::size_t e = 0; e < found.size(); ++e) {
    const bool begins = e == 0 || found[e] != found[e - 1] + 1 || found[e] % 64 == 0;
    runs += begins ? 1U : 0U;
    EXPECT_TRUE(!begins || found[e] % 64 == 0);
  }
  EXPECT_EQ(runs, 41U);
}

TEST(Patterns, UniformIndicesFillEveryPartAlike) {
  const auto found = positions({1 << 20, 1 << 16, 1, pattern_kind::uniform, 5}, 0);
  std::vector<double> parts(16);
  for (const auto i : found) ++parts[i >> 16];
  for (const double p : parts) EXPECT_NEAR(p, 4096, 5 * 62); // 5 sigma of a binomial distribution
}

TEST(Patterns, ZipfIndicesAreSharedMoreThanUniformOnes) {
  // Both ways of drawing: by rejection below n / 16, by exponential times above.
  for (const std::uint64_t k : {2000U, 20000U}) {
    const workload zipf{100000, k, 2, pattern_kind::zipf, 5};
    const auto a = positions(zipf, 0);
    const auto b = positions(zipf, 1);
    std::vector<std::uint64_t> both;
    std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
    const double by_chance = static_cast<double>(k) * static_cast<double>(k) / 100000;
    EXPECT_GT(static_cast<double>(both.size()), 1.5 * by_chance);
  }
}

TEST(Patterns, ValuesAreSmallWholeNumbers) {
  const workload w{1000, 10, 2, pattern_kind::uniform, 1};
  std::set<int> seen;
  for (std::uint64_t i = 0; i < 1000; ++i) seen.insert(spar::perf::value_at(w, 1, i));
  EXPECT_EQ(seen, (std::set<int>{1, 2, 3, 4}));
  EXPECT_EQ(spar::perf::largest_value, 4);
}

} // namespace
