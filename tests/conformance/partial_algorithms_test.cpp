// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The invariants of partial collectives under random delays, with several algorithms inside. Runs a fifth of
// SPAR_SCHEDULES seeds, but at least 17.
#include "support/collectives.hpp"
#include "support/partial_program.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace spar_test {
namespace {

/// Calls `check_one(ranks, seed)` for some seeds, which cover all numbers of ranks.
template <class Check>
void for_some_seeds(const Check& check_one) {
  for (std::uint64_t seed = 1; seed <= std::max<std::uint64_t>(schedules() / 5, 17); ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    check_one(static_cast<spar::rank_t>(1 + seed % 17), seed);
    ASSERT_FALSE(testing::Test::HasFailure());
  }
}

template <class Of, class Algorithm, class Participation>
void with_algorithm(const Participation& who) {
  for_some_seeds([&](spar::rank_t ranks, std::uint64_t seed) {
    for (const spar::rank_t f : simulate<Of>(ranks, who, seed, bounds[seed % bounds.size()], Algorithm{})) {
      EXPECT_GE(f, 1);
    }
  });
}

TEST(partial_algorithms, of_any_dense_algorithm) {
  with_algorithm<number, spar::rabenseifner>(spar::majority{});
#if SPAR_ALL_CASES
  with_algorithm<number, spar::ring>(spar::solo{});
#endif
}

TEST(partial_algorithms, of_any_sparse_algorithm) {
#if SPAR_ALL_CASES
  with_algorithm<sparse_number, spar::ssar_split>(spar::majority{});
#endif
  with_algorithm<sparse_number, spar::ring>(spar::solo{});
}

TEST(partial_algorithms, of_flexreduce_on_a_tree) {
  for_some_seeds([&](spar::rank_t ranks, std::uint64_t seed) {
    const spar::flex_plan plan(two_hosts(ranks), marked.dimension(ranks));
    simulate<number>(ranks, spar::majority{seed}, seed, 64, spar::flexreduce(plan));
    simulate<sparse_number>(ranks, spar::majority{seed}, seed, 64, spar::flexreduce(plan));
  });
}

using chosen = spar::composition<spar::selector::exact_topk, spar::storage::coo, spar::flat, spar::cheapest>;

/// The contributions of all ranks in all calls are whole numbers, and all are in the results or in the residuals.
template <class Algorithm, class Participation>
struct feedback_program {
  static constexpr std::size_t n = 60;
  Participation who;
  Algorithm (*make)();
  std::uint64_t seed;
  std::vector<std::vector<float>>* brought; // by rank
  std::vector<std::vector<float>>* results; // the sum of all rounds, as each rank received it
  std::vector<std::vector<float>>* residuals;

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    std::mt19937_64 random(seed * 1000 + static_cast<std::uint64_t>(net.rank()));
    const auto at = static_cast<std::size_t>(net.rank());
    std::exponential_distribution<double> delay(1e6);
    auto reduce = spar::partial_allreduce<float>(net, n, who, make());
    std::vector<float> x(n);
    for (std::uint64_t t = 1; t <= marked.calls + 1; ++t) {
      const bool last = t > marked.calls;
      co_await net.sleep(delay(random));
      for (std::size_t i = 0; i < n && !last; ++i) {
        x[i] = static_cast<float>(random() % 41) - 20;
        (*brought)[at][i] += x[i];
      }
      auto call = last ? reduce.start_drain(std::span(x)) : reduce.start(std::span(x));
      co_await std::move(call);
      for (std::size_t i = 0; i < n; ++i) (*results)[at][i] += x[i];
    }
    const auto kept = reduce.algorithm().residual();
    (*residuals)[at].assign(kept.begin(), kept.end());
  }
};

template <class Algorithm, class Participation>
void nothing_is_lost(const Participation& who, Algorithm (*make)()) {
  for_some_seeds([&](spar::rank_t ranks, std::uint64_t seed) {
    using calls = feedback_program<Algorithm, Participation>;
    const std::vector<std::vector<float>> none(static_cast<std::size_t>(ranks), std::vector<float>(calls::n));
    auto brought = none;
    auto results = none;
    auto residuals = none;
    run_sim(ranks, calls{who, make, seed, &brought, &results, &residuals}, random_order(seed));
    std::vector<float> all(calls::n);
    std::vector<float> found = results[0];
    for (std::size_t r = 0; r < brought.size(); ++r) {
      EXPECT_EQ(results[r], results[0]);
      ASSERT_EQ(residuals[r].size(), calls::n);
      for (std::size_t i = 0; i < calls::n; ++i) {
        all[i] += brought[r][i];
        found[i] += residuals[r][i];
      }
    }
    EXPECT_EQ(found, all);
  });
}

TEST(partial_algorithms, with_error_feedback_nothing_is_lost) {
  nothing_is_lost(spar::majority{}, +[] { return spar::ok_topk<float>({.select = {.density = 0.1, .period = 3}}); });
#if SPAR_ALL_CASES
  nothing_is_lost(spar::solo{}, +[] { return spar::ok_topk<float>({.select = {.density = 0.1}}); });
#endif
  using topk = spar::error_feedback<float, chosen>;
  nothing_is_lost(spar::quorum{1}, +[] { return topk({.select = {.k = 5}}); });
}

/// The selector selects all of the one entry per call: an entry that missed its round is selected in the next one.
TEST(partial_algorithms, of_a_collective_that_selects) {
  for_some_seeds([&](spar::rank_t ranks, std::uint64_t seed) {
    simulate<number>(ranks, spar::majority{seed}, seed, 64, chosen{.select = {.k = marked.calls}});
  });
}

} // namespace
} // namespace spar_test
