// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Gaussiank selects all entries that reach a threshold: at least 3/4 k, and about k if the values are normally
// distributed.
#include "selector/inputs.hpp"

#include <spar/selector/gaussian.hpp>

#include <cmath>

namespace {

using namespace selector_test;
using spar::selector::gaussian;

template <class T>
struct selector_gaussian : testing::Test {};
TYPED_TEST_SUITE(selector_gaussian, elements);

TYPED_TEST(selector_gaussian, takes_all_above_a_threshold_and_enough) {
  using T = typename TypeParam::type;
  spar::pool pool;
  for (const std::size_t n : {0U, 1U, 2U, 64U, 1000U, 20000U}) {
    for (const kind which : kinds) {
      const auto input = make_input<T>(n, which, n);
      const auto order = ranking<T>(input);
      for (const std::uint64_t k : {std::uint64_t{0}, std::uint64_t{1}, n / 100, n / 10, n / 2, n}) {
        if (k > n) continue;
        const gaussian select{.k = k};
        const auto taken = take<T>(select, input, pool, n % 2);
        ASSERT_EQ(taken, first_of(order, taken.size())) << "expected the largest entries";
        ASSERT_GE(taken.size(), std::min<std::size_t>(order.size(), k - k / 4)) << n << " " << k << " " << int(which);
        if (taken.size() < order.size() && !taken.empty()) {
          ASSERT_LT(size_of_value(input[order[taken.size()]]), size_of_value(input[order[taken.size() - 1]]))
              << "selected one of two equal entries and not the other";
        }
        ASSERT_EQ(take<T>(select, input, pool), taken) << "a second call has another result";
        if constexpr (spar::is_floating<T>) {
          for (const T value : input) {
            const auto wide = static_cast<double>(value);
            if (k == 0 || std::isfinite(wide)) continue;
            ASSERT_GE(taken.size(), 1U);
            ASSERT_GE(size_of_value(value), size_of_value(input[order[taken.size() - 1]]))
                << "dropped an entry that is not finite";
          }
        }
      }
    }
  }
}

/// The sum of `x` in the order that moments_of promises, by its definition.
std::vector<double> sums_of_blocks(const std::vector<double>& x) {
  std::vector<double> sums;
  for (std::size_t begin = 0; begin < x.size(); begin += 1024) {
    double lanes[8] = {};
    for (std::size_t e = begin; e < std::min(begin + 1024, x.size()); ++e) lanes[e % 8] += x[e];
    for (int l = 1; l < 8; ++l) lanes[0] += lanes[l];
    sums.push_back(lanes[0]);
  }
  return sums;
}

TEST(selector_gaussian_threshold, has_sums_in_an_order_that_devices_can_keep) {
  for (const std::size_t n : {0U, 1U, 1023U, 1024U, 1025U, 9000U, 1U << 20, (1U << 20) + 1, 2'100'000U}) {
    const auto input = make_input<double>(n, kind::normal, n);
    std::vector<double> sums = input, squares = input;
    for (double& v : squares) v *= v;
    while (sums.size() > 1) sums = sums_of_blocks(sums), squares = sums_of_blocks(squares);
    const auto got = spar::kernel::moments_of(std::span<const double>(input));
    EXPECT_EQ(got.count, n);
    EXPECT_EQ(got.sum, n == 0 ? 0 : sums[0]) << n;
    EXPECT_EQ(got.squares, n == 0 ? 0 : squares[0]) << n;
  }
}

TEST(selector_gaussian_threshold, is_right_for_normal_entries) {
  spar::pool pool;
  const auto input = make_input<float>(1 << 18, kind::normal, 1);
  for (const double density : {0.3, 0.01, 0.001}) {
    const gaussian select{.density = density};
    const double expected = density * static_cast<double>(input.size());
    EXPECT_NEAR(static_cast<double>(take<float>(select, input, pool).size()), expected, 5 * std::sqrt(expected));
  }
}

TEST(selector_gaussian_threshold, is_what_its_description_says) {
  spar::pool pool;
  constexpr std::size_t n = 50'000, k = n / 100;
  constexpr double z = 2.5758293035489004; // 1 % of a normal distribution is farther from the mean
  for (const double few : {1, 30}) {       // 1: normal values; 30: a few values cause most of the deviation
    auto input = make_input<double>(n, kind::normal, 5);
    for (std::size_t i = 0; i < n; ++i) input[i] = (i % 300 == 0 ? few : 1) * input[i] / 1000 + 0.1;
    long double sum = 0, squares = 0;
    for (const double value : input) sum += value;
    const long double mean = sum / n;
    for (const double value : input) squares += (value - mean) * (value - mean);
    double t = static_cast<double>(std::abs(mean) + z * std::sqrt(squares / n));
    const auto count = [&] {
      return std::count_if(input.begin(), input.end(), [&](double v) { return std::abs(v) >= t; });
    };
    if (few > 1) {
      EXPECT_LT(count(), 3 * k / 4) << "the first threshold needs no correction, so the test checks nothing";
    }
    while (count() < static_cast<std::ptrdiff_t>(3 * k / 4)) t /= 1.02;
    const gaussian select{.k = k};
    EXPECT_EQ(take<double>(select, input, pool).size(), static_cast<std::size_t>(count()));
  }
}

TEST(selector_gaussian_threshold, survives_outliers) {
  spar::pool pool;
  const gaussian select{.k = 100};
  for (const double outlier : {1e30, 1e300, 1.7e308}) { // the squares of the largest two are infinite
    auto input = make_input<double>(10'000, kind::normal, 2);
    input[77] = outlier;
    const auto taken = take<double>(select, input, pool);
    EXPECT_GE(taken.size(), 75U);
    EXPECT_LE(taken.size(), 100U) << "the threshold was divided by 1.02 once too often";
  }
  std::vector<double> denormal(1000);
  for (std::size_t i = 0; i < denormal.size(); ++i) denormal[i] = 4.9406564584124654e-324 * static_cast<double>(i % 40);
  denormal[0] = 1;
  EXPECT_GE(take<double>(select, denormal, pool).size(), 75U);
}

TEST(selector_gaussian_threshold, ignores_what_is_not_finite) {
  spar::pool pool;
  auto input = make_input<float>(100'000, kind::normal, 3);
  const gaussian select{.k = 1000};
  const auto before = take<float>(select, input, pool).size();
  input[5] = std::numeric_limits<float>::quiet_NaN();
  input[50'000] = -std::numeric_limits<float>::infinity();
  EXPECT_NEAR(static_cast<double>(take<float>(select, input, pool).size()), static_cast<double>(before + 2), 1);
}

TEST(selector_gaussian_threshold, names_what_is_wrong) {
  spar::pool pool;
  std::vector<float> x(10);
  EXPECT_THROW(gaussian{.k = 11}.validate(10), spar::invalid_argument);
  EXPECT_THROW((void)spar::select(gaussian{.k = 11}, std::span(x), pool), spar::invalid_argument);
  EXPECT_THROW(gaussian{.density = 1.01}.validate(10), spar::invalid_argument);
  EXPECT_NO_THROW(gaussian{.density = 1}.validate(10));
}

} // namespace
