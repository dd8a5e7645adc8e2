// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The invariants of partial collectives under random delays, with several algorithms inside. Runs a fifth of
// SPAR_SCHEDULES seeds, but at least 17.
#include "support/collectives.hpp"
#include "support/partial_program.hpp"

#include <spar/collective/compressed/bound.hpp>
#include <spar/storage/coded.hpp>
#include <spar/storage/zfp.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <type_traits>
#include <utility>
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
  with_algorithm<number, stored<spar::storage::dense, spar::two_shot>>(spar::majority{});
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

/// What the ranks have contributed and received in all calls and the drain, by rank. Contributions are whole numbers,
/// so that sums are exact.
struct totals {
  static constexpr std::size_t n = 60;
  explicit totals(spar::rank_t ranks)
      : brought(static_cast<std::size_t>(ranks), std::vector<float>(n)), magnitudes(brought), results(brought),
        residuals(brought) {}
  std::vector<std::vector<float>> brought;
  std::vector<std::vector<float>> magnitudes; // of what was brought
  std::vector<std::vector<float>> results;    // the sum of all rounds
  std::vector<std::vector<float>> residuals;
};

/// `Of` is `float` for dense values, `sparse_stream<float>` for streams. A quarter of the values are not zero, so that
/// sums of few ranks stay sparse.
template <class Of, class Algorithm, class Participation>
struct whole_numbers_program {
  Participation who;
  Algorithm (*make)();
  std::uint64_t seed;
  totals* all;

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    std::mt19937_64 random(seed * 1000 + static_cast<std::uint64_t>(net.rank()));
    const auto at = static_cast<std::size_t>(net.rank());
    std::exponential_distribution<double> delay(1e6);
    auto reduce = spar::partial_allreduce<Of>(net, totals::n, who, make());
    std::vector<float> x(totals::n);
    std::vector<std::uint32_t> indices;
    std::vector<float> values;
    for (std::uint64_t t = 1; t <= marked.calls + 1; ++t) {
      const bool last = t > marked.calls;
      co_await net.sleep(delay(random));
      indices.clear(), values.clear();
      for (std::size_t i = 0; i < totals::n && !last; ++i) {
        x[i] = 0;
        if (random() % 4 != 0) continue;
        x[i] = static_cast<float>(random() % 4001) - 2000; // more digits than `coded<7>` keeps
        indices.push_back(static_cast<std::uint32_t>(i));
        values.push_back(x[i]);
        all->brought[at][i] += x[i];
        all->magnitudes[at][i] += std::abs(x[i]);
      }
      if constexpr (std::is_same_v<Of, float>) {
        auto call = last ? reduce.start_drain(std::span(x)) : reduce.start(std::span(x));
        co_await std::move(call);
      } else {
        const auto own = spar::sparse_view(totals::n, indices, values);
        auto call = last ? reduce.start_drain(own) : reduce.start(own);
        const auto result = co_await std::move(call);
        result.sum.to_dense(std::span(x), spar::sum{});
      }
      for (std::size_t i = 0; i < totals::n; ++i) all->results[at][i] += x[i];
    }
    if constexpr (requires { reduce.algorithm().residual(); }) {
      const auto kept = reduce.algorithm().residual();
      all->residuals[at].assign(kept.begin(), kept.end());
    }
  }
};

template <class Of, class Algorithm, class Participation>
totals totals_of(spar::rank_t ranks, const Participation& who, std::uint64_t seed, Algorithm (*make)()) {
  totals all(ranks);
  run_sim(ranks, whole_numbers_program<Of, Algorithm, Participation>{who, make, seed, &all}, random_order(seed));
  for (const auto& result : all.results) EXPECT_EQ(result, all.results[0]);
  for (const auto& residual : all.residuals) EXPECT_EQ(residual.size(), totals::n);
  return all;
}

std::vector<float> sum_of(const std::vector<std::vector<float>>& by_rank) {
  std::vector<float> sum(totals::n);
  for (const auto& x : by_rank)
    for (std::size_t i = 0; i < totals::n; ++i) sum[i] += x[i];
  return sum;
}

/// Returns whether a residual has a value other than zero.
template <class Algorithm, class Participation>
bool nothing_is_lost(const Participation& who, Algorithm (*make)()) {
  bool keeps = false;
  for_some_seeds([&](spar::rank_t ranks, std::uint64_t seed) {
    const totals all = totals_of<float>(ranks, who, seed, make);
    const std::vector<float> kept = sum_of(all.residuals);
    for (const auto& residual : all.residuals)
      keeps = keeps || std::any_of(residual.begin(), residual.end(), [](float x) { return x != 0; });
    EXPECT_EQ(sum_of({all.results[0], kept}), sum_of(all.brought));
  });
  return keeps;
}

TEST(partial_algorithms, with_error_feedback_nothing_is_lost) {
  nothing_is_lost(spar::majority{}, +[] { return spar::ok_topk<float>({.select = {.density = 0.1, .period = 3}}); });
#if SPAR_ALL_CASES
  nothing_is_lost(spar::solo{}, +[] { return spar::ok_topk<float>({.select = {.density = 0.1}}); });
#endif
  using topk = spar::error_feedback<float, chosen>;
  nothing_is_lost(spar::quorum{1}, +[] { return topk({.select = {.k = 5}}); });
}

template <class Storage>
auto all_entries() {
  return spar::with_error_feedback<float>(
      spar::compose(spar::selector::nonzeros{}, Storage{}, spar::recursive_doubling{.parts = 2}));
}
template <class Storage>
auto largest_entries() {
  const spar::selector::threshold_reuse select{.density = 0.1, .period = 3};
  return spar::with_error_feedback<float>(spar::compose(select, Storage{}, spar::balanced_owners{}));
}

TEST(partial_algorithms, with_error_feedback_a_code_that_rounds_loses_nothing) {
  using spar::storage::coded;
  EXPECT_TRUE(nothing_is_lost(spar::majority{}, +[] { return all_entries<coded<7>>(); }));
  EXPECT_TRUE(nothing_is_lost(spar::solo{}, +[] { return largest_entries<coded<7>>(); }));
#if SPAR_ALL_CASES
  EXPECT_FALSE(nothing_is_lost(spar::majority{}, +[] { return all_entries<coded<>>(); })); // all is in the sums
  EXPECT_TRUE(nothing_is_lost(spar::quorum{1}, +[] { return largest_entries<coded<>>(); }));
#endif
}

template <class Storage, class Schedule>
totals totals_of_streams(spar::rank_t ranks, std::uint64_t seed) {
  return totals_of<spar::sparse_stream<float>>(
      ranks, spar::majority{seed}, seed, +[] { return spar::compose(Storage{}, Schedule{}); });
}

/// Which calls a round has depends on the storage, because messages take other times; the sum of all rounds does not.
/// `encodings(P)` is how often an entry and the sums that include it are rounded at most.
template <class Schedule, class Encodings>
void expect_totals_of_codes(const Encodings& encodings) {
  using spar::storage::coded;
  bool rounds = false;
  for_some_seeds([&](spar::rank_t ranks, std::uint64_t seed) {
    const totals plain = totals_of_streams<spar::storage::coo, Schedule>(ranks, seed);
    const totals exact = totals_of_streams<coded<>, Schedule>(ranks, seed);
    const std::vector<float> expected = sum_of(plain.brought);
    EXPECT_EQ(plain.results[0], expected);
    EXPECT_EQ(bits_of(exact.results[0]), bits_of(plain.results[0]));

    const totals rounded = totals_of_streams<coded<7>, Schedule>(ranks, seed);
    const std::vector<float> magnitude = sum_of(plain.magnitudes);
    const double relative = ranks == 1 ? 0 : std::pow(1 + 0x1p-8, encodings(ranks)) - 1;
    for (std::size_t i = 0; i < totals::n; ++i)
      EXPECT_NEAR(rounded.results[0][i], expected[i], relative * static_cast<double>(magnitude[i])) << "index " << i;
    rounds = rounds || rounded.results[0] != expected;
  });
  EXPECT_TRUE(rounds);
}

TEST(partial_algorithms, of_streams_in_a_code_have_the_total_of_coordinates) {
  expect_totals_of_codes<spar::ssar_split>([](spar::rank_t) { return 2; });
#if SPAR_ALL_CASES
  expect_totals_of_codes<spar::recursive_doubling>(
      [](spar::rank_t ranks) { return std::bit_width(static_cast<unsigned>(ranks)) + 1; }); // floor(log2 P) + 2
#endif
}

/// The sum of all rounds is that of all calls, within `relative` of what the largest value of each call might be.
template <class Algorithm, class Participation>
void expect_totals_of_values(const Participation& who, Algorithm (*make)(), double relative) {
  for_some_seeds([&](spar::rank_t ranks, std::uint64_t seed) {
    const totals all = totals_of<float>(ranks, who, seed, make);
    const std::vector<float> expected = sum_of(all.brought);
    const double bound = relative * 2000 * static_cast<double>(marked.calls) * ranks;
    for (std::size_t i = 0; i < totals::n; ++i) EXPECT_NEAR(all.results[0][i], expected[i], bound) << "index " << i;
  });
}

TEST(partial_algorithms, of_dense_values_in_a_code_have_the_total_of_all_calls) {
  using namespace spar::storage;
  expect_totals_of_values(spar::majority{}, +[] { return spar::compose(qsgd<8>{}, spar::two_shot{.piece = 7}); }, 0.02);
  expect_totals_of_values(spar::solo{}, +[] { return spar::compose(zfp{.rate = 16}, spar::one_shot{}); }, 0.02);
  expect_totals_of_values(spar::quorum{1}, +[] { return spar::compose(bound{.error = 0.25}, spar::two_shot{}); }, 0);
#if SPAR_ALL_CASES
  expect_totals_of_values(spar::solo{}, +[] { return spar::compose(bound{.error = 0.25}, spar::ring{.piece = 7}); }, 0);
  expect_totals_of_values(spar::quorum{1}, +[] { return spar::compose(qsgd<8>{}, spar::one_shot{}); }, 0.02);
  expect_totals_of_values(spar::majority{}, +[] { return spar::compose(zfp{.rate = 16}, spar::two_shot{}); }, 0.02);
#endif
}

TEST(partial_algorithms, with_error_feedback_dense_values_that_are_rounded_lose_nothing) {
  using namespace spar::storage;
  EXPECT_TRUE(nothing_is_lost(
      spar::majority{},
      +[] { return spar::with_error_feedback<float>(spar::compose(as_bfloat16{}, spar::two_shot{})); }));
  EXPECT_TRUE(nothing_is_lost(
      spar::solo{},
      +[] { return spar::with_error_feedback<float>(spar::compose(bound{.error = 2}, spar::one_shot{})); }));
}

/// The selector selects all of the one entry per call: an entry that missed its round is selected in the next one.
TEST(partial_algorithms, of_a_collective_that_selects) {
  for_some_seeds([&](spar::rank_t ranks, std::uint64_t seed) {
    simulate<number>(ranks, spar::majority{seed}, seed, 64, chosen{.select = {.k = marked.calls}});
  });
}

} // namespace
} // namespace spar_test
