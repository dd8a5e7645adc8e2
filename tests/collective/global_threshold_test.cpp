// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The search for the k-th largest magnitude of all ranks' values, against a sort of all values. The ranks of the search
// are objects of one rank, whose counters the test adds up.
#include "support/ranks.hpp"

#include <spar/collective/algorithm.hpp>
#include <spar/collective/topk/global_threshold.hpp>
#include <spar/runtime/pending.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <string_view>
#include <vector>

namespace spar_test {
namespace {

using spar::detail::threshold_counts;
using spar::detail::threshold_search;
using spar::selector::topk_bounds;
using values = std::vector<float>;
using key = spar::kernel::magnitude<float>;

/// The magnitudes of all ranks' values, the largest first.
std::vector<key> sorted(const std::vector<values>& x) {
  std::vector<key> all;
  for (const values& one : x) {
    for (const float v : one) all.push_back(spar::kernel::magnitude_of(v));
  }
  std::sort(all.begin(), all.end(), std::greater<>());
  return all;
}
threshold_counts counts_of(const std::vector<key>& all, key threshold) {
  threshold_counts counts;
  for (const key m : all) counts.above += m > threshold, counts.at += m == threshold;
  return counts;
}

/// Searches from `last`; stores the threshold and the number of rounds.
struct search : spar::algorithm_defaults {
  static constexpr std::string_view name = "search";
  const std::vector<values>* x;
  topk_bounds bounds;
  key last;
  key* found;
  int* rounds;
  search(const std::vector<values>* all, const topk_bounds& b, key from, key* to, int* r)
      : x(all), bounds(b), last(from), found(to), rounds(r) {}

  template <class Net>
  spar::task<void> operator()(spar::channel<Net> net) const& {
    std::vector<threshold_search<float>> ranks(x->size(), {last, counts_of(sorted(*x), last), bounds});
    for (*rounds = 0; !ranks[0].done(); ++*rounds) {
      std::vector<std::span<std::uint64_t>> counters;
      for (std::size_t r = 0; r < ranks.size(); ++r)
        counters.push_back(co_await ranks[r].count(net, std::span<const float>((*x)[r])));
      for (std::size_t i = 0; i < counters[0].size(); ++i) {
        std::uint64_t sum = 0;
        for (const auto& one : counters) sum += one[i];
        for (const auto& one : counters) one[i] = sum;
      }
      for (auto& one : ranks) one.narrow();
      if (*rounds > 20) break;
    }
    for (const auto& one : ranks) EXPECT_EQ(one.threshold(), ranks[0].threshold());
    *found = ranks[0].threshold();
  }
};

key search_from(const std::vector<values>& x, const topk_bounds& bounds, key last, int* rounds) {
  key found = 0;
  spar::thread_group group{1};
  group.run([&](spar::threads& net) {
    const search algorithm(&x, bounds, last, &found, rounds);
    spar::run_collective(net, spar::signature_of<float, std::uint32_t, spar::sum>(1, algorithm), algorithm);
  });
  return found;
}

std::vector<values> random_values(std::size_t ranks, std::size_t each, std::uint64_t seed) {
  std::vector<values> x(ranks, values(each));
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  for (values& one : x) {
    for (float& v : one) v = normal(random) * std::exp2(static_cast<float>(random() % 8));
  }
  return x;
}

TEST(global_threshold, without_slack_is_reached_by_exactly_k_values) {
  for (const std::size_t ranks : {1U, 2U, 5U}) {
    for (const std::uint64_t k : {1U, 2U, 17U, 99U, 100U}) {
      const auto x = random_values(ranks, 100, k);
      const auto all = sorted(x);
      for (const key last : {key{0}, all[0], all[k - 1], all.back(), spar::kernel::greatest_magnitude<float>}) {
        int rounds = 0;
        const threshold_counts counts = counts_of(all, search_from(x, topk_bounds::around(k, 0), last, &rounds));
        EXPECT_EQ(counts.above + counts.at, k) << "from " << last;
        EXPECT_LE(rounds, 8); // the first round, and seven for 31 bits: each divides the range by 31
      }
    }
  }
}

TEST(global_threshold, of_equal_values_is_the_kth_largest_magnitude) {
  const std::vector<values> x{{5, 1, -1, 1}, {-1, 1, 3, 0}};
  for (const std::uint64_t k : {3U, 4U, 6U}) {
    for (const key last : {key{0}, spar::kernel::magnitude_of(1.0F), spar::kernel::magnitude_of(5.0F)}) {
      int rounds = 0;
      EXPECT_EQ(search_from(x, topk_bounds::around(k, 0), last, &rounds), spar::kernel::magnitude_of(1.0F)) << k;
    }
  }
}

TEST(global_threshold, needs_no_round_where_the_last_threshold_still_fits) {
  const auto x = random_values(3, 100, 5);
  int rounds = -1;
  search_from(x, topk_bounds::around(20, 0), sorted(x)[19], &rounds);
  EXPECT_EQ(rounds, 0);
}

TEST(global_threshold, with_slack_keeps_about_k_entries) {
  for (const std::uint64_t k : {10U, 40U, 100U}) {
    const auto x = random_values(4, 100, k);
    const topk_bounds bounds = topk_bounds::around(k, 0.2);
    int rounds = 0;
    const threshold_counts counts = counts_of(sorted(x), search_from(x, bounds, 1, &rounds));
    EXPECT_GE(counts.above + counts.at, bounds.least) << k;
    EXPECT_LE(counts.above + counts.at, bounds.most) << k;
  }
}

TEST(global_threshold, of_fewer_than_k_nonzeros_keeps_them_all) {
  const std::vector<values> x{{0, 1, 0}, {0, 0, -2}};
  int rounds = 0;
  EXPECT_EQ(search_from(x, topk_bounds::around(4, 0), 0, &rounds), key{0});
  EXPECT_EQ(search_from(x, topk_bounds::around(4, 0), spar::kernel::magnitude_of(2.0F), &rounds), key{1});
}

TEST(global_threshold, keeps_ties_only_up_to_k) {
  const topk_bounds bounds{.least = 4, .k = 5, .most = 6};
  const auto kept = [&](std::uint64_t above, std::uint64_t at) { return threshold_counts{above, at}.kept(bounds); };
  EXPECT_EQ(kept(3, 3), 6U); // at most `most`: all
  EXPECT_EQ(kept(3, 4), 5U); // too many: up to k
  EXPECT_EQ(kept(5, 2), 5U);
  EXPECT_EQ(kept(6, 9), 6U); // those above are always kept
  EXPECT_EQ(kept(0, 0), 0U);
  EXPECT_EQ(kept(2, 1), 3U);
}

/// Keeps entries of a stream with the indices 0, 1, 2 ...
struct keep : spar::algorithm_defaults {
  static constexpr std::string_view name = "keep";
  const values* x;
  key threshold;
  std::uint64_t ties;
  std::vector<std::uint32_t>* kept;
  keep(const values* v, key t, std::uint64_t at, std::vector<std::uint32_t>* to)
      : x(v), threshold(t), ties(at), kept(to) {}
  template <class Net>
  spar::task<void> operator()(spar::channel<Net> net) const& {
    auto entries = spar::sparse_stream<float>::sparse(net.memory(), x->size(), x->size());
    for (std::uint32_t i = 0; i < x->size(); ++i) entries.indices()[i] = i, entries.values()[i] = (*x)[i];
    co_await net.work().keep_from(entries, threshold, ties);
    kept->assign(entries.indices().begin(), entries.indices().end());
    for (std::size_t e = 0; e < kept->size(); ++e) EXPECT_EQ(entries.values()[e], (*x)[(*kept)[e]]);
  }
};

TEST(global_threshold, the_first_ties_and_all_larger_entries_stay_in_order) {
  const values x{2, -3, 1, -2, 2, 5, 2};
  for (std::uint64_t ties = 0; ties <= 5; ++ties) {
    std::vector<std::uint32_t> kept, expected;
    std::uint64_t left = ties;
    for (std::uint32_t i = 0; i < x.size(); ++i) {
      const bool tie = std::abs(x[i]) == 2 && left > 0;
      if (tie) --left;
      if (tie || std::abs(x[i]) > 2) expected.push_back(i);
    }
    spar::thread_group group{1};
    group.run([&](spar::threads& net) {
      const keep algorithm(&x, spar::kernel::magnitude_of(2.0F), ties, &kept);
      spar::run_collective(net, spar::signature_of<float, std::uint32_t, spar::sum>(1, algorithm), algorithm);
    });
    EXPECT_EQ(kept, expected) << ties << " ties";
  }
}

} // namespace
} // namespace spar_test
