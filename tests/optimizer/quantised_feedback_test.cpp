// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Quantised Top-k: the rounding errors of the second phase are in the residual of the block's owner, exact to one
// rounding.
#include "support/ranks.hpp"
#include "support/streams.hpp"

#include <spar/collective/allreduce/compose.hpp>
#include <spar/optimizer/error_feedback.hpp>
#include <spar/selector/exact_topk.hpp>
#include <spar/storage/qsgd.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

namespace spar_test {

namespace {

template <class Reducer>
using vectors = std::vector<std::vector<typename Reducer::value_type>>;

/// Bytes are expensive, so that SparCML chooses the lossy algorithm.
constexpr spar::network_model dear_bytes{1e-9, 1e-6, 1e-9, 1e-9};

template <class Reducer>
struct program {
  const vectors<Reducer>* x;
  std::vector<std::unique_ptr<Reducer>>* reducers;
  vectors<Reducer>* sums;

  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    net.port().node().set_network(dear_bytes);
    const auto r = static_cast<std::size_t>(net.rank());
    (*sums)[r] = (*x)[r];
    auto call = (*reducers)[r]->start(net, std::span((*sums)[r]));
    co_await std::move(call);
  }
};

template <class Reducer>
std::vector<std::unique_ptr<Reducer>> reducers_of(spar::rank_t ranks, std::uint64_t k) {
  typename Reducer::algorithm_type algorithm;
  algorithm.select.k = k;
  std::vector<std::unique_ptr<Reducer>> all;
  for (spar::rank_t r = 0; r < ranks; ++r) all.push_back(std::make_unique<Reducer>(algorithm));
  return all;
}

/// Whole numbers from -9 to 9, with the largest at the front.
template <class Reducer>
vectors<Reducer> whole_numbers(spar::rank_t ranks, std::size_t n, std::uint64_t seed) {
  using T = typename Reducer::value_type;
  vectors<Reducer> x(static_cast<std::size_t>(ranks), std::vector<T>(n));
  for (std::size_t r = 0; r < x.size(); ++r) {
    std::mt19937_64 random(seed * 1000 + r);
    for (T& value : x[r]) value = static_cast<T>(static_cast<int>(random() % 19) - 9);
  }
  return x;
}

template <class T, class Second, class Schedule>
using quantised =
    spar::error_feedback<T, spar::composition<spar::selector::exact_topk,
                                              spar::storage::then<spar::storage::coo, Second>, spar::flat, Schedule>>;
template <class T, class Second>
using split = quantised<T, Second, spar::dsar_split>;
template <class T, class Second>
using chosen = quantised<T, Second, spar::cheapest>;

template <class Reducer>
class quantised_feedback : public testing::Test {};
using reducers = testing::Types<split<float, spar::storage::qsgd<8>>, split<float, spar::storage::qsgd<4>>,
                                split<double, spar::storage::qsgd<2>>,
#ifdef SPAR_HAS_HALF
                                split<spar::half, spar::storage::qsgd<4>>,
#endif
                                chosen<float, spar::storage::qsgd<4>>>;
TYPED_TEST_SUITE(quantised_feedback, reducers);

TYPED_TEST(quantised_feedback, sum_and_residuals_are_all_that_was_brought_to_one_rounding) {
  using T = typename TypeParam::value_type;
  for (const mode where : all_modes) {
    for (const spar::rank_t ranks : all_ranks) {
      for (const std::size_t n : {0U, 1U, 5U, 1500U}) {
        SCOPED_TRACE(testing::Message() << where << ", P = " << ranks << ", n = " << n);
        auto all = reducers_of<TypeParam>(ranks, n - n / 4);
        const auto x = whole_numbers<TypeParam>(ranks, n, 1);
        vectors<TypeParam> sums(x.size());
        run(where, ranks, program<TypeParam>{&x, &all, &sums});
        const spar::uniform_ownership owner{n, ranks};
        std::uint64_t lossy = 0;
        for (std::size_t i = 0; i < n; ++i) {
          std::size_t owned_by = 0;
          while (i >= owner[static_cast<spar::rank_t>(owned_by)].end) ++owned_by;
          long double lost = 0;
          for (std::size_t r = 0; r < x.size(); ++r) {
            ASSERT_EQ(sums[r][i], sums[0][i]);
            const T kept = all[r]->residual()[i];
            const bool as_selected = kept == x[r][i] || kept == T{};
            if (r == owned_by) lossy += as_selected ? 0U : 1U;
            ASSERT_TRUE(as_selected || r == owned_by) << "index " << i << " is not rank " << r << "'s";
            lost += static_cast<long double>(x[r][i]) - static_cast<long double>(kept);
          }
          lost -= static_cast<long double>(sums[0][i]);
          const auto residual = static_cast<double>(all[owned_by]->residual()[i]);
          constexpr int digits = sizeof(T) == 2 ? 11 : std::numeric_limits<T>::digits;
          const double half_ulp = residual == 0 ? 0 : std::ldexp(1, std::ilogb(residual) - digits);
          ASSERT_LE(std::abs(static_cast<double>(lost)), half_ulp) << "index " << i;
        }
        if (n == 1500 && ranks > 1) {
          EXPECT_GT(lossy, 100U) << "nothing was rounded, so the test checks nothing";
        }
      }
    }
  }
}

TYPED_TEST(quantised_feedback, the_rest_is_sent_later) {
  using T = typename TypeParam::value_type;
  constexpr spar::rank_t ranks = 3;
  constexpr std::size_t n = 300;
  auto all = reducers_of<TypeParam>(ranks, n);
  std::vector<double> reduced(n);
  const auto x = whole_numbers<TypeParam>(ranks, n, 1);
  const vectors<TypeParam> nothing(ranks, std::vector<T>(n));
  constexpr int steps = 40;
  for (int step = 0; step < steps; ++step) {
    vectors<TypeParam> sums(ranks);
    run(mode::sim, ranks, program<TypeParam>{step == 0 ? &x : &nothing, &all, &sums});
    for (std::size_t i = 0; i < n; ++i) reduced[i] += static_cast<double>(sums[0][i]);
  }
  for (std::size_t i = 0; i < n; ++i) {
    double brought = 0;
    double kept = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
      brought += static_cast<double>(x[r][i]);
      kept += static_cast<double>(all[r]->residual()[i]);
    }
    ASSERT_NEAR(reduced[i] + kept, brought, sizeof(T) == 2 ? 0.5 : 1e-4) << "index " << i;
  }
}

TYPED_TEST(quantised_feedback, what_is_no_number_leaves_nothing_behind) {
  using T = typename TypeParam::value_type;
  constexpr spar::rank_t ranks = 3;
  constexpr std::size_t n = 400;
  auto all = reducers_of<TypeParam>(ranks, n);
  auto x = whole_numbers<TypeParam>(ranks, n, 2);
  x[1][7] = static_cast<T>(std::numeric_limits<float>::infinity());
  x[2][200] = static_cast<T>(std::numeric_limits<float>::quiet_NaN());
  vectors<TypeParam> sums(ranks);
  run(mode::sim, ranks, program<TypeParam>{&x, &all, &sums});
  EXPECT_TRUE(std::isinf(static_cast<float>(sums[0][7])));
  EXPECT_TRUE(std::isnan(static_cast<float>(sums[0][200])));
  for (const auto& its : all) {
    for (const T kept : its->residual()) ASSERT_TRUE(std::isfinite(static_cast<float>(kept)));
  }
}

TEST(quantised_feedback, sparcml_chooses_the_lossy_algorithm) {
  for (const spar::rank_t ranks : all_ranks) {
    if (ranks == 1) continue;
    const spar::call_shape call{ranks, 1500, 1125, 4, 4};
    EXPECT_EQ(spar::choose_sparcml(dear_bytes, call, 0.5), spar::sparcml_choice::dsar) << ranks;
  }
}

} // namespace
} // namespace spar_test
