// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The baselines of Ok-Topk: nothing is lost, all ranks end with the same bits, and the messages and bytes are those of
// docs/reference/costs.md, for any number of ranks.
#include "conformance/expected_traffic.hpp"
#include "support/ranks.hpp"
#include "support/streams.hpp"

#include <spar/system/published.hpp>

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace spar_test {

namespace {

using vectors = std::vector<std::vector<float>>;

/// What a call returned on a rank.
struct outcome {
  spar::sparse_stream<float> sum;
  std::vector<std::uint32_t> contributed;
  spar::statistics cost;
};

template <class Reducer>
struct program {
  const vectors* x;
  std::vector<std::unique_ptr<Reducer>>* reducers;
  std::vector<outcome>* outcomes;

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const auto r = static_cast<std::size_t>(net.rank());
    auto call = (*reducers)[r]->start_reduce(net, std::span<const float>((*x)[r]));
    auto result = co_await std::move(call);
    outcome& its = (*outcomes)[r];
    const auto indices = std::as_const(result.contributed).indices();
    its.contributed.assign(indices.begin(), indices.end());
    its.sum = std::move(result.sum);
    its.cost = call.statistics();
  }
};

/// The ranks' reducers, which keep their residuals from call to call.
template <class Reducer>
class group {
 public:
  group(mode where, spar::rank_t ranks, std::uint64_t k) : where_(where), ranks_(ranks) {
    typename Reducer::algorithm_type algorithm;
    algorithm.select.k = k;
    for (spar::rank_t r = 0; r < ranks; ++r) reducers_.push_back(std::make_unique<Reducer>(algorithm));
  }

  /// Makes one call; all ranks must end with the same sum.
  std::vector<outcome> operator()(const vectors& x) {
    std::vector<outcome> outcomes(x.size());
    run(where_, ranks_, program<Reducer>{&x, &reducers_, &outcomes});
    for (const auto& its : outcomes) EXPECT_TRUE(same_stream(its.sum, outcomes[0].sum));
    return outcomes;
  }
  [[nodiscard]] std::vector<float> residual(std::size_t rank) const {
    const auto x = reducers_[rank]->residual();
    return {x.begin(), x.end()};
  }
  [[nodiscard]] std::vector<float> residuals() const {
    std::vector<float> sum = residual(0);
    for (std::size_t r = 1; r < reducers_.size(); ++r) {
      const auto x = residual(r);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += x[i];
    }
    return sum;
  }

 private:
  mode where_;
  spar::rank_t ranks_;
  std::vector<std::unique_ptr<Reducer>> reducers_;
};

/// Whole numbers from -span to span, whose sums are exact.
vectors whole_numbers(spar::rank_t ranks, std::size_t n, std::uint64_t seed, std::uint64_t span) {
  vectors x(static_cast<std::size_t>(ranks), std::vector<float>(n));
  for (std::size_t r = 0; r < x.size(); ++r) {
    std::mt19937_64 random(seed * 1000 + r);
    for (float& value : x[r]) value = static_cast<float>(random() % (2 * span + 1)) - static_cast<float>(span);
  }
  return x;
}

std::vector<float> dense_of(const spar::sparse_stream<float>& sum) {
  std::vector<float> x(sum.dimension());
  sum.to_dense(x, spar::sum{});
  return x;
}

std::vector<float> added(std::vector<float> a, const std::vector<float>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

std::vector<float> total(const vectors& all) {
  std::vector<float> sum(all[0].size());
  for (const auto& x : all) sum = added(std::move(sum), x);
  return sum;
}

template <class Reducer>
class baseline : public testing::Test {};
using baselines = testing::Types<spar::topka<float>, spar::gaussiank<float>, spar::topkdsa<float>, spar::gtopk<float>>;
TYPED_TEST_SUITE(baseline, baselines);

/// Whether the reducer selects by a threshold, as Gaussiank: at least 3/4 of k entries, and perhaps more than k.
template <class Reducer>
constexpr bool by_threshold = std::is_same_v<Reducer, spar::gaussiank<float>>;

TYPED_TEST(baseline, sum_and_residuals_are_all_that_was_brought) {
  for (const mode where : all_modes) {
    for (const spar::rank_t ranks : all_ranks) {
      for (const std::size_t n : {0U, 1U, 5U, 60U}) {
        for (const std::uint64_t k : {0U, 1U, 7U, 60U}) {
          if ((k > n && k != 7) || !runs_case(3, position_of(where), ranks, n, k)) continue;
          SCOPED_TRACE(testing::Message() << where << ", P = " << ranks << ", n = " << n << ", k = " << k);
          const std::uint64_t at_most = std::min<std::uint64_t>(k, n);
          group<TypeParam> all(where, ranks, at_most);
          std::vector<float> brought(n);
          std::vector<float> reduced(n);
          for (std::uint64_t step = 0; step < 3; ++step) {
            const vectors x = whole_numbers(ranks, n, step, step == 1 ? 1 : 20); // few values: ties, zero sums
            const auto outcomes = all(x);
            brought = added(brought, total(x));
            reduced = added(reduced, dense_of(outcomes[0].sum));
            ASSERT_EQ(added(reduced, all.residuals()), brought) << "step " << step;
            if (!by_threshold<TypeParam>) {
              for (const auto& its : outcomes) ASSERT_LE(its.contributed.size(), at_most);
            }
            if (k == n && !by_threshold<TypeParam>) {
              ASSERT_EQ(reduced, brought) << "everything must be sent";
            }
          }
        }
      }
    }
  }
}

TYPED_TEST(baseline, zeros_and_ties) {
  for (const mode where : all_modes) {
    for (const spar::rank_t ranks : all_ranks) {
      SCOPED_TRACE(testing::Message() << where << ", P = " << ranks);
      const auto p = static_cast<std::size_t>(ranks);
      group<TypeParam> all(where, ranks, 4);
      EXPECT_EQ(all(vectors(p, std::vector<float>(30)))[0].sum.count(), 0U) << "zeros must not be sent";
      const auto ties = all(vectors(p, std::vector<float>(30, 2)));
      std::vector<float> first_four(30);
      std::fill_n(first_four.begin(), 4, 2 * static_cast<float>(ranks));
      if (by_threshold<TypeParam>) first_four.assign(30, 2 * static_cast<float>(ranks));
      EXPECT_EQ(dense_of(ties[0].sum), first_four) << "expected the lowest indices among equal entries";
    }
  }
}

TYPED_TEST(baseline, what_is_no_number_is_sent_first_and_once) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const mode where : all_modes) {
    for (const spar::rank_t ranks : all_ranks) {
      SCOPED_TRACE(testing::Message() << where << ", P = " << ranks);
      group<TypeParam> all(where, ranks, 2);
      vectors x = whole_numbers(ranks, 40, 3, 20);
      x.back()[17] = std::numeric_limits<float>::quiet_NaN();
      x.back()[18] = -infinity;
      const auto sum = dense_of(all(x)[0].sum);
      EXPECT_TRUE(std::isnan(sum[17]));
      EXPECT_EQ(sum[18], -infinity);
      for (const float kept : all.residuals()) EXPECT_TRUE(std::isfinite(kept));
    }
  }
}

// --- messages and bytes ---

std::vector<std::pair<mode, spar::rank_t>> where_to_count() {
  std::vector<std::pair<mode, spar::rank_t>> all;
  for (std::size_t i = 0; i < all_ranks.size(); ++i)
    for (const mode where : all_modes)
      if (runs_case(2, i, position_of(where))) all.emplace_back(where, all_ranks[i]);
  for (const spar::rank_t ranks : many_ranks()) all.emplace_back(mode::sim, ranks);
  return all;
}

costs costs_of(const std::vector<outcome>& outcomes, std::uint64_t n) {
  costs c{n, {}};
  for (const auto& its : outcomes) c.indices.emplace_back(its.contributed.begin(), its.contributed.end());
  return c;
}

void expect_sent(const std::vector<outcome>& outcomes, const auto& expected) {
  for (std::size_t r = 0; r < outcomes.size(); ++r) {
    const traffic due = expected(r);
    ASSERT_EQ(outcomes[r].cost.messages_sent, due.messages) << "rank " << r;
    ASSERT_EQ(outcomes[r].cost.bytes_sent, due.bytes) << "rank " << r;
  }
}

constexpr std::uint64_t count_n = 3000;

TEST(topka, sends_what_the_costs_say) {
  for (const auto& [where, ranks] : where_to_count()) {
    for (const std::uint64_t k : {0U, 20U}) {
      SCOPED_TRACE(testing::Message() << where << ", P = " << ranks << ", k = " << k);
      group<spar::topka<float>> all(where, ranks, k);
      const auto outcomes = all(whole_numbers(ranks, count_n, 1, 100));
      const costs c = costs_of(outcomes, count_n);
      const auto p = static_cast<std::uint64_t>(ranks);
      expect_sent(outcomes, [&](std::uint64_t r) { return c.allgather(r); });
      expect_sent(outcomes, [&](std::uint64_t) { // in words: 2 k (P - 1), and the sizes
        return traffic{c.log2_ceil(), 4 * (2 * k * (p - 1) + 2 * (p - 1))};
      });
    }
  }
}

TEST(gaussiank, sends_what_the_costs_say) {
  for (const auto& [where, ranks] : where_to_count()) {
    SCOPED_TRACE(testing::Message() << where << ", P = " << ranks);
    group<spar::gaussiank<float>> all(where, ranks, 20);
    const auto outcomes = all(whole_numbers(ranks, count_n, 1, 100));
    const costs c = costs_of(outcomes, count_n);
    expect_sent(outcomes, [&](std::uint64_t r) { return c.allgather(r); });
    for (const auto& its : outcomes) EXPECT_GE(its.contributed.size(), 15U);
  }
}

TEST(topkdsa, sends_what_the_costs_say) {
  bool sparse = false;
  bool dense = false;
  for (const auto& [where, ranks] : where_to_count()) {
    for (const std::uint64_t k : {0U, 20U, 800U}) {
      if (ranks > 64 && k > 20) continue; // the reference would take long
      SCOPED_TRACE(testing::Message() << where << ", P = " << ranks << ", k = " << k);
      group<spar::topkdsa<float>> all(where, ranks, k);
      const auto outcomes = all(whole_numbers(ranks, count_n, 1, 100));
      const costs c = costs_of(outcomes, count_n);
      expect_sent(outcomes, [&](std::uint64_t r) { return c.adaptive_split(r); });
      (outcomes[0].sum.is_dense() ? dense : sparse) = true;
      // All ranks together send at most 2 k P + n (P - 1) words, plus the agreement and the sizes of sparse parts.
      const auto p = static_cast<std::uint64_t>(ranks);
      std::uint64_t words = 0;
      for (const auto& its : outcomes) words += its.cost.bytes_sent / 4;
      EXPECT_LE(words, 2 * k * p + (count_n + 4 * p) * (p - 1));
    }
  }
  EXPECT_TRUE(sparse && dense);
  // All ranks have the same entries, equally many in each block: 4 k (P - 1) / P words.
  constexpr std::uint64_t k = 24;
  for (const spar::rank_t ranks : {2, 3, 4, 8}) {
    group<spar::topkdsa<float>> all(mode::sim, ranks, k);
    vectors x(static_cast<std::size_t>(ranks), std::vector<float>(count_n));
    for (auto& mine : x)
      for (std::size_t e = 0; e < k; ++e) mine[e * (count_n / k)] = 1;
    const auto p = static_cast<std::uint64_t>(ranks);
    expect_sent(all(x), [&](std::uint64_t) {
      return traffic{p - 1 + 2 * std::bit_width(p - 1), 4 * (4 * k * (p - 1) / p + 4 * (p - 1))};
    });
  }
}

/// The tree of gTop-k, written without the library.
struct reference_gtopk {
  std::vector<std::map<std::uint32_t, float>> have;
  vectors residual;
  std::vector<traffic> sent;

  reference_gtopk(const vectors& x, std::uint64_t k) : have(x.size()), residual(x), sent(x.size()) {
    for (std::size_t r = 0; r < x.size(); ++r) {
      for (std::uint32_t i = 0; i < x[r].size(); ++i) have[r][i] = std::exchange(residual[r][i], 0.0F);
      select(r, k);
    }
    for (std::size_t distance = 1; distance < x.size(); distance *= 2) {
      for (std::size_t r = 0; r + distance < x.size(); r += 2 * distance) {
        sent[r + distance] += {1, 8 * have[r + distance].size()};
        for (const auto& [i, value] : have[r + distance]) have[r][i] += value;
        select(r, k);
      }
    }
    costs c{0, {}};
    c.indices.resize(x.size());
    for (std::size_t r = 0; r < x.size(); ++r) sent[r] += c.broadcast(r, 0, 8 * have[0].size());
  }

 private:
  void select(std::size_t r, std::uint64_t k) {
    auto& all = have[r];
    std::erase_if(all, [](const auto& entry) { return entry.second == 0; });
    while (all.size() > k) {
      auto smallest = all.begin();
      for (auto at = all.begin(); at != all.end(); ++at)
        if (std::abs(at->second) <= std::abs(smallest->second)) smallest = at; // the last of equal entries
      residual[r][smallest->first] += smallest->second;
      all.erase(smallest);
    }
  }
};

TEST(gtopk, is_the_tree_and_sends_what_the_costs_say) {
  for (const auto& [where, ranks] : where_to_count()) {
    for (const std::uint64_t k : {0U, 20U}) {
      const std::size_t n = ranks > 13 ? 100 : 300;
      SCOPED_TRACE(testing::Message() << where << ", P = " << ranks << ", k = " << k);
      const vectors x = whole_numbers(ranks, n, 4, 30);
      const reference_gtopk expected(x, k);
      group<spar::gtopk<float>> all(where, ranks, k);
      const auto outcomes = all(x);
      std::vector<float> sum(n);
      for (const auto& [i, value] : expected.have[0]) sum[i] = value;
      ASSERT_EQ(dense_of(outcomes[0].sum), sum);
      for (std::size_t r = 0; r < x.size(); ++r) ASSERT_EQ(all.residual(r), expected.residual[r]) << "rank " << r;
      expect_sent(outcomes, [&](std::uint64_t r) { return expected.sent[r]; });
      const auto rounds = static_cast<std::uint64_t>(std::bit_width(static_cast<std::uint64_t>(ranks - 1)));
      std::uint64_t together = 0;
      for (const auto& its : outcomes) {
        ASSERT_LE(its.cost.bytes_sent + its.cost.bytes_received, 4 * 4 * k * rounds);
        together += its.cost.bytes_sent;
      }
      if (outcomes[0].sum.count() == k) { // the mean: twice 2 k (P - 1) / P words
        EXPECT_EQ(together, 8 * k * 2 * static_cast<std::uint64_t>(ranks - 1));
      }
    }
  }
}

TEST(gtopk, takes_a_density) {
  spar::thread_group ranks{3};
  ranks.run([](spar::threads& net) {
    spar::gtopk<float> reduce({.select = {.density = 0.1}});
    std::vector<float> x(40, 1);
    const auto result = reduce.reduce(net, std::span<const float>(x));
    EXPECT_EQ(result.sum.count(), 4U);
  });
}

TEST(gtopk, ranks_agree_on_k) {
  spar::thread_group ranks{2};
  EXPECT_THROW(ranks.run([](spar::threads& net) {
    spar::gtopk<float> reduce({.select = {.k = net.rank() == 0 ? 1U : 2U}});
    std::vector<float> x(5);
    reduce(net, std::span<float>(x));
  }),
               spar::error);
}

} // namespace
} // namespace spar_test
