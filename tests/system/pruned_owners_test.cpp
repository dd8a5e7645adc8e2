// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Pruning changes no bit of Ok-Topk: sums, contributions, residuals and states are those of the schedule that sends all
// values, whatever the values are.
#include "support/ranks.hpp"

#include <spar/collective/topk/pruned_owners.hpp>
#include <spar/storage/coded.hpp>
#include <spar/system/published.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace spar_test {
namespace {

template <class Storage>
using pruned_allreduce = spar::composition<spar::selector::threshold_reuse, Storage, spar::flat, spar::pruned_owners>;

template <class T>
using vectors = std::vector<std::vector<T>>;

/// The ranks of one system, with their state, and the outcome of the last call.
template <class Reducer, class T, class Op, class Index>
struct job {
  job(spar::rank_t ranks, const typename Reducer::algorithm_type& options)
      : results(static_cast<std::size_t>(ranks)), costs(results.size()) {
    for (spar::rank_t r = 0; r < ranks; ++r) reducers.push_back(std::make_unique<Reducer>(options));
  }

  struct call {
    job* its;
    const vectors<T>* x;
    template <class Net>
    spar::task<void> operator()(Net& net) const& {
      const auto r = static_cast<std::size_t>(net.rank());
      auto pending = its->reducers[r]->start_reduce(net, std::span<const T>((*x)[r]), Op{});
      its->results[r] = co_await std::move(pending);
      its->costs[r] = pending.statistics();
    }
  };
  void run(const vectors<T>& x) { run_sim(static_cast<spar::rank_t>(results.size()), call{this, &x}); }

  /// Changes the threshold, on all ranks, by `octaves` factors of two.
  void scale_threshold(int octaves) {
    for (auto& reduce : reducers) {
      typename Reducer::state state = reduce->current_state();
      const auto step = static_cast<std::int64_t>(octaves) << spar::kernel::detail::mantissa_digits<T>;
      const auto scaled = static_cast<std::int64_t>(state.by.global_threshold) + step;
      load(*reduce, state, static_cast<std::uint64_t>(std::max<std::int64_t>(scaled, 1)));
    }
  }
  void set_threshold(std::uint64_t magnitude) {
    for (auto& reduce : reducers) {
      typename Reducer::state state = reduce->current_state();
      state.by.calls = 1;
      load(*reduce, state, magnitude);
    }
  }
  static void load(Reducer& reduce, typename Reducer::state& state, std::uint64_t magnitude) {
    state.by.global_threshold = magnitude;
    spar::detail::state_writer words;
    state.shared_state(words);
    state.own_state(words);
    reduce.load(spar::detail::to_bytes<T>(words.words, reduce.residual(), spar::detail::names_of(reduce.algorithm())));
  }

  std::vector<std::unique_ptr<Reducer>> reducers;
  std::vector<spar::selected_sum<T, Index>> results;
  std::vector<spar::statistics> costs;
};

template <class T>
bool same_bits(std::span<const T> a, std::span<const T> b) {
  const auto as = std::as_bytes(a), bs = std::as_bytes(b);
  return std::equal(as.begin(), as.end(), bs.begin(), bs.end());
}
template <class T, class Index>
bool same_bits(const spar::sparse_stream<T, Index>& a, const spar::sparse_stream<T, Index>& b) {
  return same_bits(a.indices(), b.indices()) && same_bits(a.values(), b.values());
}

/// Both systems with the same input.
template <class T, class Op = spar::sum, class Index = std::uint32_t, class Storage = spar::storage::coded<>>
struct pair {
  using value_type = T;
  static constexpr bool prunes = !spar::is_row<T>;

  pair(spar::rank_t ranks, const spar::selector::threshold_reuse& select, std::uint64_t tau)
      : today(ranks, {.select = select, .by = {.tau = tau}}), pruned(ranks, {.select = select, .by = {.tau = tau}}) {}

  void run(const vectors<T>& x) {
    const std::uint64_t last_threshold = pruned.reducers[0]->current_state().by.global_threshold;
    today.run(x);
    pruned.run(x);
    for (std::size_t r = 0; r < x.size(); ++r) {
      ASSERT_TRUE(same_bits(today.results[r].sum, pruned.results[r].sum)) << "rank " << r;
      ASSERT_TRUE(same_bits(today.results[r].contributed, pruned.results[r].contributed)) << "rank " << r;
      ASSERT_TRUE(same_bits(today.reducers[r]->residual(), pruned.reducers[r]->residual())) << "rank " << r;
      const auto& before = today.reducers[r]->current_state();
      const auto& after = pruned.reducers[r]->current_state();
      ASSERT_EQ(before.select, after.select);
      ASSERT_EQ(before.by.global_threshold, after.by.global_threshold);
      ASSERT_EQ(before.by.boundaries, after.by.boundaries);
      ASSERT_EQ(before.by.counts.received, after.by.counts.received);
      ASSERT_EQ(before.by.counts.sent, after.by.counts.sent);
      if (!prunes) continue;
      const spar::statistics& cost = pruned.costs[r]; // a rank sends what it has encoded once
      ASSERT_EQ(cost.plain_bytes_sent - cost.bytes_sent, cost.coded_indices * sizeof(Index) - cost.coded_index_bytes +
                                                             cost.coded_values * sizeof(T) - cost.coded_value_bytes);
    }
    const auto& did = today.reducers[0]->report().by;
    const auto& does = pruned.reducers[0]->report().by;
    ASSERT_EQ(did.threshold_rounds, does.threshold_rounds);
    const bool fell = pruned.reducers[0]->current_state().by.global_threshold < last_threshold;
    ASSERT_EQ(does.sent_again, fell && prunes);
    sent_again += pruned.reducers[0]->report().by.sent_again ? 1U : 0U;
    for (const auto& reduce : pruned.reducers) asked += reduce->report().by.asked;
  }

  job<spar::ok_topk<T, Index>, T, Op, Index> today;
  job<spar::error_feedback<T, pruned_allreduce<Storage>, Index>, T, Op, Index> pruned;
  unsigned sent_again = 0;
  std::uint64_t asked = 0;
};

/// The value of rank r at index i in a step: of one of several kinds, ordinary and adversarial.
template <class T>
class values {
 public:
  values(std::uint64_t seed, std::size_t ranks, std::size_t n)
      : random_(seed), kind_(random_() % kinds), ranks_(ranks), n_(n) {
    start();
  }
  values(std::uint64_t seed, std::size_t ranks, std::size_t n, std::uint64_t kind)
      : random_(seed), kind_(kind), ranks_(ranks), n_(n) {
    start();
  }
  static constexpr std::uint64_t kinds = 12;

  vectors<T> next() {
    vectors<T> x(ranks_, std::vector<T>(n_));
    for (auto& s : signal_) s += 0.2 * gaussian(random_);
    const std::size_t crowded = random_() % n_;
    for (std::size_t i = 0; i < n_; ++i) {
      const double cancelled = gaussian(random_), size = std::ldexp(1.0, static_cast<int>(random_() % 30));
      for (std::size_t r = 0; r < ranks_; ++r) {
        const double noise = gaussian(random_), sign = (r + i) % 2 == 0 ? 1 : -1;
        x[r][i] = static_cast<T>(value(i, r, noise, sign, cancelled, size, crowded));
      }
    }
    return x;
  }

 private:
  void start() {
    for (std::size_t i = 0; i < n_; ++i) signal_.push_back(gaussian(random_));
  }
  double value(std::size_t i, std::size_t r, double noise, double sign, double cancelled, double size,
               std::size_t crowded) {
    using limits = std::numeric_limits<T>;
    const auto largest = static_cast<double>(limits::max());
    const std::uint64_t dice = random_() % 64;
    switch (kind_) {
    case 0: // independent
      return noise;
    case 1: // drift
      return signal_[i] + 0.5 * noise;
    case 2: // cancelling
      return sign * cancelled + 0.01 * noise;
    case 3: // sums whose rounding decides: large numbers that cancel, and small ones
      return dice % 2 == 0 ? sign * std::ldexp(1.0, limits::digits) - static_cast<double>(dice % 3) : 0.3 * noise;
    case 4: // denormal numbers
      return noise * static_cast<double>(limits::denorm_min()) * 5;
    case 5: // infinities
      return dice < 2 ? sign * static_cast<double>(limits::infinity()) : noise;
    case 6: // NaN
      return dice == 0 ? static_cast<double>(limits::quiet_NaN()) : noise;
    case 7: // sums that overflow, of which some cancel
      return dice % 4 == 0 ? (dice < 32 ? 1 : sign) * largest * 0.7 : noise * largest / 64;
    case 8: // empty ranks
      return (r + static_cast<std::size_t>(size)) % 2 == 0 ? 0 : noise;
    case 9: // all entries in one block
      return i == crowded || (i + n_ - crowded) % n_ < n_ / 8 + 1 ? noise : 0;
    case 10: // ties, also at the threshold
      return static_cast<double>(static_cast<int>(2 * noise));
    default: // magnitudes of all sizes
      return sign * noise * size;
    }
  }
  static double gaussian(std::mt19937_64& random) { return std::normal_distribution<double>()(random); }

  std::mt19937_64 random_;
  std::uint64_t kind_;
  std::size_t ranks_, n_;
  std::vector<double> signal_;
};

/// The same values in another type.
template <class T, class U>
vectors<T> as(const vectors<U>& x) {
  if constexpr (std::is_same_v<T, U>) return x;
  vectors<T> all(x.size());
  for (std::size_t r = 0; r < x.size(); ++r)
    for (std::size_t i = 0; i < x[r].size(); i += std::max(spar::width_of<T>, std::size_t{1})) {
      if constexpr (spar::is_row<T>)
        std::copy_n(&x[r][i], spar::width_of<T>, all[r].emplace_back().values);
      else
        all[r].push_back(static_cast<T>(x[r][i]));
    }
  return all;
}

/// Calls of both systems with `input`, of which some have another threshold than the call before has left.
template <class Pair, class T>
void run_calls(Pair& both, values<T>& input, std::mt19937_64& random) {
  for (int step = 0; step < 6; ++step) {
    if (const std::uint64_t dice = random() % 8; step > 0 && dice < 2) {
      both.today.scale_threshold(dice == 0 ? 1 : -1);
      both.pruned.scale_threshold(dice == 0 ? 1 : -1);
    }
    both.run(as<typename Pair::value_type>(input.next()));
    if (testing::Test::HasFatalFailure()) return;
  }
}

template <class T, class... Others> // the other types of a pair
void expect_same_bits(std::uint64_t sequences, std::uint64_t first_seed) {
  using source = std::conditional_t<sizeof(T) == 2, float, T>;
  constexpr spar::rank_t numbers[] = {1, 2, 3, 5, 8};
  unsigned sent_again = 0;
  std::uint64_t asked = 0;
  for (std::uint64_t s = 0; s < sequences; ++s) {
    std::mt19937_64 random(first_seed + s);
    const spar::rank_t ranks = s % 100 == 99 ? 18 : numbers[random() % 5]; // of 18 ranks, two buckets are merged
    const std::size_t n = 1 + random() % 120;
    const double epsilons[] = {0, 0.1, 0.4};
    const spar::selector::threshold_reuse select{
        .k = random() % (n + 1) / 2, .period = 1 + random() % 5, .epsilon = epsilons[random() % 3]};
    SCOPED_TRACE(testing::Message() << "sequence " << first_seed + s << ", P = " << ranks << ", n = " << n
                                    << ", k = " << select.k);
    values<source> input(random(), static_cast<std::size_t>(ranks), n);
    pair<T, Others...> both(ranks, select, 1 + random() % 4);
    run_calls(both, input, random);
    if (testing::Test::HasFatalFailure()) return;
    sent_again += both.sent_again;
    asked += both.asked;
  }
  EXPECT_GT(sent_again, sequences / 10);
  EXPECT_GT(asked, sequences);
}

TEST(pruned_owners, has_the_bits_of_ok_topk) { expect_same_bits<float>(is_full() ? 10'000 : 200, 1); }
TEST(pruned_owners, has_the_bits_of_ok_topk_on_20_ranks_and_with_many_values) {
  for (const auto& [ranks, n] : {std::pair<spar::rank_t, std::size_t>(20, 200), {4, 40'000}}) {
    std::mt19937_64 random(7);
    values<float> input(1, static_cast<std::size_t>(ranks), n, 1);
    pair<float> both(ranks, {.k = n / 20, .period = 3}, 2);
    run_calls(both, input, random);
    EXPECT_GT(both.asked, n / 20) << "P = " << ranks;
  }
}

/// Two periods of the boundaries and four of the local thresholds, so that residuals grow and thresholds move.
TEST(pruned_owners, has_the_bits_of_ok_topk_in_long_sequences) {
  enum : std::uint64_t { drift = 1, cancelling = 2, large_that_cancel = 3 }; // of `values`
  constexpr std::size_t n = 400;
  for (const spar::rank_t ranks : {3, 4, 8}) {
    std::uint64_t asked = 0;
    for (const std::uint64_t kind : {drift, cancelling, large_that_cancel}) {
      SCOPED_TRACE(testing::Message() << "P = " << ranks << ", values of kind " << kind);
      values<float> input(kind, static_cast<std::size_t>(ranks), n, kind);
      pair<float> both(ranks, {.k = n / 20, .period = 32}, 64);
      for (int step = 0; step < 128; ++step) {
        both.run(input.next());
        if (testing::Test::HasFatalFailure()) return;
      }
      asked += both.asked;
    }
    EXPECT_GT(asked, 3 * 128U) << "P = " << ranks;
  }
}
#if SPAR_ALL_CASES
TEST(pruned_owners, has_the_bits_of_ok_topk_with_doubles) { expect_same_bits<double>(is_full() ? 2'000 : 100, 20'000); }
#ifdef SPAR_HAS_HALF
TEST(pruned_owners, has_the_bits_of_ok_topk_with_halves) {
  expect_same_bits<spar::half>(is_full() ? 2'000 : 100, 30'000);
}
#endif
TEST(pruned_owners, has_the_bits_of_ok_topk_with_average) {
  expect_same_bits<float, spar::average>(is_full() ? 2'000 : 100, 40'000);
}
TEST(pruned_owners, has_the_bits_of_ok_topk_with_wide_indices_and_plain_entries) {
  expect_same_bits<float, spar::sum, std::uint64_t, spar::storage::coo>(is_full() ? 2'000 : 100, 50'000);
}
TEST(pruned_owners, has_the_bits_of_ok_topk_with_rows) {
  using row = spar::row<float, 8>;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const auto ranks = static_cast<spar::rank_t>(1 + seed % 5);
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", P = " << ranks);
    values<float> input(seed, static_cast<std::size_t>(ranks), 8 * 60);
    pair<row> both(ranks, {.k = 10, .period = 2}, 2);
    for (int step = 0; step < 4; ++step) {
      both.run(as<row>(input.next()));
      if (testing::Test::HasFatalFailure()) return;
    }
    EXPECT_EQ(both.sent_again, 0U);
    EXPECT_EQ(both.asked, 0U);
  }
}
#endif

/// n values on each rank, of which `x[r]` are the first, and a selector that takes all nonzero ones.
vectors<float> padded(const vectors<float>& x, std::size_t n) {
  vectors<float> all = x;
  for (auto& its : all) its.resize(n);
  return all;
}
std::uint64_t magnitude(float x) { return spar::kernel::magnitude_of(x); }

/// One call with a threshold that is reused; `winners` sums may be in the result.
void expect_same_bits_at(float threshold, const vectors<float>& x, std::uint64_t winners) {
  pair<float> both(static_cast<spar::rank_t>(x.size()), {.k = 10, .period = 100, .epsilon = 0.9}, 100);
  both.today.set_threshold(magnitude(threshold));
  both.pruned.set_threshold(magnitude(threshold));
  both.run(padded(x, 100));
  EXPECT_EQ(both.pruned.results[0].sum.count(), winners);
  EXPECT_EQ(both.pruned.reducers[0]->report().by.threshold_rounds, 0U);
}

TEST(pruned_owners, a_sum_that_only_its_rounding_lets_win_is_not_pruned) {
  constexpr float large = 16'777'215; // 2^24 - 1; the sum of the first column, in the order of the ranks, is 1.0F
  expect_same_bits_at(1, {{large, 5, 5}, {-0.3F, 5, 5}, {0.6F, 5, 5}, {-large, 5, 5}}, 3);
}
TEST(pruned_owners, a_sum_whose_bound_is_the_threshold_is_not_pruned) {
  expect_same_bits_at(1, {{0.5F, 3, 3}, {0.5F, 3, 3}}, 3);
  expect_same_bits_at(1, {{0.5F, 3, 3}, {0.499F, 3, 3}}, 2);
}
TEST(pruned_owners, infinities_and_sums_that_overflow_are_not_pruned) {
  constexpr float inf = std::numeric_limits<float>::infinity(), most = std::numeric_limits<float>::max();
  expect_same_bits_at(1, {{inf, -inf, inf}, {-0.5F, 0.5F, -inf}, {0.25F, 0, 0.5F}}, 3);
  expect_same_bits_at(most, {{most, 0.9F * most, -most}, {0.9F * most, 0.9F * most, most}, {-most, -most, most}}, 3);
  // All finite values are small, and the sum of the second column is not.
  expect_same_bits_at(inf, {{inf, 0.9F * most, 1}, {1, 0.9F * most, 1}}, 2);
  // The threshold is the magnitude of a NaN: infinities are below, but no number bounds their sum.
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  constexpr std::uint32_t magnitude_of_infinity = spar::kernel::magnitude_of(inf);
  expect_same_bits_at(nan, {{nan, inf, 1, nan}, {1, -inf, 1, 1}}, 3);
  vectors<float> x(3, std::vector<float>(100));
  for (auto& its : x)
    for (const std::size_t i : {0U, 1U, 40U, 42U, 70U, 71U}) its[i] = 1;
  x[0][41] = inf, x[2][41] = -inf; // the owner, rank 1, has no entry there
  expect_same_bits_at(std::bit_cast<float>(magnitude_of_infinity + 1), x, 1);
}

TEST(pruned_owners, the_lowest_threshold_is_found_without_a_round) {
  constexpr float least = std::numeric_limits<float>::denorm_min(); // the only magnitude below 2 of these
  pair<float> both(1, {.k = 1, .period = 100}, 100);
  both.today.set_threshold(2);
  both.pruned.set_threshold(2);
  both.run({{0, least}});
  EXPECT_EQ(both.pruned.results[0].sum.count(), 1U);
  EXPECT_TRUE(both.pruned.reducers[0]->report().by.sent_again);
}

TEST(pruned_owners, sends_the_documented_messages) {
  for (const spar::rank_t ranks : {1, 2, 3, 4, 7, 8}) {
    const auto p = static_cast<std::uint64_t>(ranks);
    const std::uint64_t log_p = static_cast<std::uint64_t>(std::bit_width(p - 1));
    pair<float> both(ranks, {.k = 20, .period = 100, .epsilon = 0.3}, 100);
    std::mt19937_64 random(5);
    vectors<float> x(p, std::vector<float>(200));
    for (auto& its : x)
      for (std::size_t i = 0; i < its.size(); ++i)
        its[i] = static_cast<float>(random() % 1000 + 1) / (i % 10 == 0 ? 1.0F : 5000.0F);
    for (int step = 0; step < 4; ++step) {
      both.run(x);
      for (std::size_t r = 0; r < p && step > 0; ++r) {
        const auto& did = both.pruned.reducers[r]->report().by;
        ASSERT_FALSE(did.counted_first || did.repeated || did.sent_again || did.threshold_rounds != 0) << step;
        EXPECT_EQ(both.pruned.costs[r].messages_sent, 4 * (p - 1) + log_p) << "P = " << p;
      }
    }
  }
}

TEST(pruned_owners, drops_the_values_that_cannot_win) {
  // On each of four ranks, 40 of 400 entries win, all with others. Ok-Topk sends 3 / 4 of 400 entries to owners.
  pair<float> both(4, {.k = 400, .period = 100, .epsilon = 0.9}, 100);
  vectors<float> x(4, std::vector<float>(40'000));
  std::mt19937_64 random(3);
  for (std::size_t r = 0; r < 4; ++r)
    for (std::size_t e = 0; e < 400; ++e) {
      const float small = 1 + static_cast<float>(random() % 1000) / 1000;
      x[r][100 * e + (e % 10 == 0 ? 0 : r)] = e % 10 == 0 ? 10.0F : small;
    }
  both.today.set_threshold(magnitude(3.0F));
  both.pruned.set_threshold(magnitude(3.0F));
  both.run(x);
  for (const auto& reduce : both.pruned.reducers) EXPECT_EQ(reduce->report().by.asked, 0U);
  EXPECT_EQ(both.pruned.results[0].sum.count(), 40U);
  std::uint64_t today = 0, pruned = 0;
  for (std::size_t r = 0; r < x.size(); ++r) {
    today += both.today.costs[r].bytes_sent;
    pruned += both.pruned.costs[r].bytes_sent;
  }
  EXPECT_LE(pruned, 2'500U); // 5'736 with the values that cannot win
  EXPECT_GE(today, 9'600U);  // 8 bytes for each of 1'200 entries
}

} // namespace
} // namespace spar_test
