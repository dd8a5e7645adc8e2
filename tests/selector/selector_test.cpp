// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Selectors move entries: what is selected plus what is left is the input, bit for bit; zeros never, NaN first.
#include <spar/selector/all.hpp>
#include <spar/selector/exact_topk.hpp>
#include <spar/selector/selector.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <vector>

namespace {

using index = std::uint32_t;

static_assert(spar::selects<spar::selector::all, float, std::uint32_t>);
static_assert(spar::selects<spar::selector::exact_topk, double, std::uint64_t>);
struct without_name {
  template <class Index>
  spar::stream<float, Index> operator()(std::span<float>, spar::pool&) const;
};
static_assert(!spar::selects<without_name, float, std::uint32_t>);
static_assert(!spar::selects<spar::selector::all, float, int>);

template <class T>
bool same_bits(T a, T b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

/// Each place is either selected with its bits, and left as zero, or left as it was.
template <class T>
void expect_moved(const std::vector<T>& before, const std::vector<T>& residual,
                  const spar::stream<T, index>& selected) {
  ASSERT_FALSE(selected.is_dense());
  ASSERT_NO_THROW(spar::validate(selected.view()));
  ASSERT_EQ(selected.dimension(), before.size());
  std::size_t e = 0;
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (e < selected.count() && selected.indices()[e] == i) {
      ASSERT_TRUE(same_bits(selected.values()[e], before[i])) << "index " << i;
      ASSERT_TRUE(residual[i] == T{}) << "index " << i << " is still there";
      ASSERT_TRUE(before[i] != T{}) << "a zero was selected";
      ++e;
    } else {
      ASSERT_TRUE(same_bits(residual[i], before[i])) << "index " << i << " has changed";
    }
  }
  ASSERT_EQ(e, selected.count());
}

std::vector<float> mixed_values(std::size_t n, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const float special[] = {0.0F,
                           -0.0F,
                           std::numeric_limits<float>::denorm_min(),
                           1e-30F,
                           std::numeric_limits<float>::infinity(),
                           std::numeric_limits<float>::quiet_NaN(),
                           -1.0F,
                           1.0F};
  std::vector<float> x(n);
  for (float& value : x)
    value = random() % 3 == 0 ? special[random() % 8] : static_cast<float>(static_cast<double>(random() % 2001) - 1000);
  return x;
}

/// Rank of a magnitude: NaN above infinity.
double magnitude(float x) {
  if (std::isnan(x)) return std::numeric_limits<double>::infinity();
  return std::isinf(x) ? 1e308 : std::abs(static_cast<double>(x));
}

TEST(selector_all, takes_every_nonzero) {
  spar::pool pool;
  for (const std::size_t n : {0U, 1U, 63U, 64U, 65U, 1000U, 5000U}) {
    const auto before = mixed_values(n, n);
    auto x = before;
    const auto selected = spar::selector::all{}.operator()<index>(std::span<float>(x), pool);
    expect_moved(before, x, selected);
    EXPECT_EQ(selected.count(),
              static_cast<std::uint64_t>(std::count_if(before.begin(), before.end(), [](float v) { return v != 0; })));
  }
}

TEST(selector_exact_topk, takes_the_largest_and_of_equal_ones_the_first) {
  spar::pool pool;
  for (const std::size_t n : {0U, 1U, 10U, 100U, 1000U}) {
    for (const std::uint64_t k : {0U, 1U, 2U, 7U, 50U, 999U, 1000U, 5000U}) {
      const auto before = mixed_values(n, n + k);
      auto x = before;
      spar::selector::exact_topk largest;
      largest.k = k;
      const auto selected = largest.operator()<index>(std::span<float>(x), pool);
      expect_moved(before, x, selected);

      std::vector<std::size_t> order(n);
      for (std::size_t i = 0; i < n; ++i) order[i] = i;
      std::stable_sort(order.begin(), order.end(),
                       [&](std::size_t a, std::size_t b) { return magnitude(before[a]) > magnitude(before[b]); });
      std::vector<index> expected;
      for (std::size_t i = 0; i < n && expected.size() < k; ++i)
        if (magnitude(before[order[i]]) > 0) expected.push_back(static_cast<index>(order[i]));
      std::sort(expected.begin(), expected.end());
      ASSERT_EQ(std::vector<index>(selected.indices().begin(), selected.indices().end()), expected)
          << "n = " << n << ", k = " << k;
    }
  }
}

TEST(selector_exact_topk, of_constants_takes_the_first) {
  spar::pool pool;
  std::vector<double> x(20, -3.0);
  spar::selector::exact_topk largest;
  largest.k = 4;
  const auto selected = largest.operator()<std::uint64_t>(std::span<double>(x), pool);
  ASSERT_EQ(selected.count(), 4U);
  for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(selected.indices()[i], i);
  EXPECT_EQ(x[3], 0.0);
  EXPECT_EQ(x[4], -3.0);
}

TEST(selector_exact_topk, of_zeros_takes_nothing) {
  spar::pool pool;
  std::vector<std::int32_t> x(20, 0);
  spar::selector::exact_topk largest;
  largest.k = 4;
  EXPECT_EQ(largest.operator()<index>(std::span<std::int32_t>(x), pool).count(), 0U);
}

TEST(selector_exact_topk, knows_the_most_negative_integer) {
  spar::pool pool;
  std::vector<std::int32_t> x{5, std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max(),
                              -7};
  spar::selector::exact_topk largest;
  largest.k = 1;
  const auto selected = largest.operator()<index>(std::span<std::int32_t>(x), pool);
  ASSERT_EQ(selected.count(), 1U);
  EXPECT_EQ(selected.indices()[0], 1U);
}

} // namespace
