// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Exact selections of vectors, buckets and streams, against a full sort.
#include "selector/inputs.hpp"
#include "support/counting_resource.hpp"
#include "support/extent.hpp"

#include <spar/selector/bucket_topk.hpp>
#include <spar/selector/exact_topk.hpp>
#include <spar/storage/keep_largest.hpp>

namespace {

using namespace selector_test;
using spar::selector::bucket_topk;
using spar::selector::exact_topk;

template <class T>
struct selector_topk : testing::Test {};
TYPED_TEST_SUITE(selector_topk, elements);

TYPED_TEST(selector_topk, takes_the_largest_and_of_equal_ones_the_first) {
  using T = typename TypeParam::type;
  spar::pool pool;
  for (const std::size_t n : {0U, 1U, 2U, 63U, 64U, 65U, 255U, 256U, 257U, 1000U, 5001U}) {
    for (const kind which : kinds) {
      const auto input = make_input<T>(n, which, n + 1);
      const auto order = ranking<T>(input);
      for (const std::size_t k : {std::size_t{0}, std::size_t{1}, std::size_t{7}, n / 100, n / 2, n - 1, n}) {
        if (k > n) continue;
        const exact_topk largest{.k = k};
        ASSERT_EQ(take<T>(largest, input, pool, n % 3), first_of(order, k)) << n << " " << k << " " << int(which);
      }
    }
  }
}

TYPED_TEST(selector_topk, takes_the_largest_of_long_vectors) {
  using T = typename TypeParam::type;
  spar::pool pool;
  for (const std::size_t n : {std::size_t{16383}, std::size_t{16384}, std::size_t{40001}}) {
    if (spar_test::is_shortened && n == 40001) continue;
    for (const kind which : kinds) {
      const auto input = make_input<T>(n, which, n);
      const auto order = ranking<T>(input);
      std::size_t position = 0;
      for (const std::size_t k : {std::size_t{1}, std::size_t{30}, n / 100, n / 20, n / 3, n}) {
        if (!spar_test::runs_case(2, n, which, position++)) continue;
        const exact_topk largest{.k = k};
        ASSERT_EQ(take<T>(largest, input, pool), first_of(order, k)) << n << " " << k << " " << int(which);
      }
    }
  }
}

TYPED_TEST(selector_topk, is_exact_where_the_sample_misleads) {
  using T = typename TypeParam::type;
  spar::pool pool;
  const std::size_t n = std::size_t{1} << 16, parts = 4 * 256, length = n / parts;
  for (const bool large : {true, false}) { // the sampled values are all larger, or all smaller, than the rest
    auto input = make_input<T>(n, kind::normal, 3);
    for (std::size_t p = 0; p < parts; ++p)
      input[p * length + spar::kernel::detail::scatter_of(p, length)] = large ? static_cast<T>(20000) : T{};
    const auto order = ranking<T>(input);
    for (const std::size_t k : {std::size_t{1}, std::size_t{600}, std::size_t{1500}}) {
      const exact_topk largest{.k = k};
      ASSERT_EQ(take<T>(largest, input, pool), first_of(order, k)) << k << " " << large;
    }
  }
}

/// The selection from each bucket, from the rankings of the buckets.
std::vector<index32> first_of_each(const std::vector<std::vector<index32>>& rankings, std::size_t bucket,
                                   std::uint64_t k) {
  std::vector<index32> expected;
  for (std::size_t b = 0; b < rankings.size(); ++b)
    for (const index32 i : first_of(rankings[b], k)) expected.push_back(static_cast<index32>(b * bucket) + i);
  return expected;
}

template <class T>
std::vector<std::vector<index32>> ranking_of_each(std::span<const T> x, std::size_t bucket) {
  std::vector<std::vector<index32>> rankings;
  for (std::size_t first = 0; first < x.size(); first += bucket)
    rankings.push_back(ranking<T>(x.subspan(first, std::min(bucket, x.size() - first))));
  return rankings;
}

template <class T>
void expect_largest_of_short_buckets() {
  spar::pool pool;
  std::vector<std::size_t> buckets{255, 256, 511, 512, 1023, 1024, 1025};
  for (std::size_t bucket = 1; bucket <= 200; ++bucket) buckets.push_back(bucket);
  for (const std::size_t bucket : buckets) {
    for (const kind which : kinds) {
      if (!spar_test::runs_case(spar_test::is_shortened ? 8 : 2, bucket, which)) continue;
      const auto input = make_input<T>(2 * bucket + (bucket * 7) % 13 % bucket, which, bucket); // the last is shorter
      const auto rankings = ranking_of_each<T>(input, bucket);
      for (const std::uint64_t k : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{4},
                                    std::uint64_t{13}, std::uint64_t{14}, std::uint64_t{bucket}}) {
        if (k > bucket) continue;
        const bucket_topk largest{.k = k, .bucket = bucket};
        ASSERT_EQ(take<T>(largest, input, pool), first_of_each(rankings, bucket, k))
            << k << " of " << bucket << " " << int(which);
      }
    }
  }
}

TYPED_TEST(selector_topk, of_short_buckets) { expect_largest_of_short_buckets<typename TypeParam::type>(); }
#ifdef SPAR_HAS_BFLOAT16
TEST(selector_bucket_topk, of_short_buckets_of_bfloat16) { expect_largest_of_short_buckets<spar::bfloat16>(); }
#endif

TYPED_TEST(selector_topk, of_each_bucket) {
  using T = typename TypeParam::type;
  spar::pool pool;
  for (const std::size_t n : {0U, 1U, 100U, 512U, 513U, 1500U}) {
    for (const std::uint64_t bucket : {1U, 10U, 512U, 4096U}) {
      for (const std::uint64_t k : {0U, 1U, 3U, 8U}) {
        for (const kind which : kinds) {
          if (k > bucket) continue;
          const auto input = make_input<T>(n, which, n + k);
          const auto expected = first_of_each(ranking_of_each<T>(input, bucket), bucket, k);
          const bucket_topk largest{.k = k, .bucket = bucket};
          ASSERT_EQ(take<T>(largest, input, pool), expected) << n << " " << k << " " << bucket;
        }
      }
    }
  }
}

/// Buckets that are searched together, by a threshold that fits some of them and not others.
TYPED_TEST(selector_topk, of_each_bucket_of_a_long_vector) {
  using T = typename TypeParam::type;
  spar::pool pool;
  constexpr std::size_t n = (std::size_t{1} << 16) + 5000;
  for (const kind which : {kind::mixed, kind::normal, kind::mostly_zeros}) {
    auto input = make_input<T>(n, which, 7);
    for (std::size_t i = 0; i < n; ++i) {
      if (i / 3000 % 3 == 1) input[i] = static_cast<T>(i % 5 == 0 ? 1 : 0); // smaller than elsewhere, with ties
    }
    for (const auto& [k, bucket] :
         {std::pair<std::uint64_t, std::uint64_t>{5, 512}, {1, 64}, {20, 64}, {5, 2000}, {100, 1000}, {3, 70000}}) {
      const auto expected = first_of_each(ranking_of_each<T>(input, bucket), bucket, k);
      const bucket_topk largest{.k = k, .bucket = bucket};
      ASSERT_EQ(take<T>(largest, input, pool), expected) << k << " " << bucket;
    }
  }
}

TYPED_TEST(selector_topk, of_a_stream) {
  using T = typename TypeParam::type;
  spar::pool pool;
  for (const std::size_t n : {0U, 1U, 2U, 300U, spar_test::is_shortened ? 3000U : 20000U}) {
    for (const kind which : kinds) {
      const auto values = make_input<T>(n, which, n); // as an operation computes them, with zeros
      const auto order = ranking<T>(values);
      std::size_t position = 0;
      for (const std::uint64_t k : {std::uint64_t{0}, std::uint64_t{1}, n / 3, n, n + 5}) {
        ++position;
        for (const bool dense : {false, true}) { // the values are at every third index, or from index 5 on
          if (n > 300 && !spar_test::runs_case(3, which, position, dense)) continue;
          const std::uint64_t dimension = 3 * n + 10;
          auto s = dense ? spar::sparse_stream<T>::dense(pool, dimension, 5, n)
                         : spar::sparse_stream<T>::sparse(pool, dimension, n);
          std::copy(values.begin(), values.end(), s.values().begin());
          for (std::size_t e = 0; e < s.indices().size(); ++e) s.indices()[e] = static_cast<index32>(3 * e);
          const auto place = [&](std::size_t e) { return static_cast<index32>(dense ? 5 + e : 3 * e); };

          const auto others = spar::keep_largest(s, k, pool);
          const auto chosen = first_of(order, k);
          ASSERT_FALSE(s.is_dense());
          ASSERT_EQ(s.dimension(), dimension);
          ASSERT_EQ(others.dimension(), dimension);
          ASSERT_EQ(others.is_dense(), dense);
          std::vector<T> sum(dimension), expected(dimension); // each index is in one of the two results
          std::vector<index32> kept;
          for (const index32 e : chosen) kept.push_back(place(e));
          ASSERT_EQ(indices_of(s), kept);
          ASSERT_EQ(others.count(), dense ? n : n - chosen.size());
          if (!dense) {
            ASSERT_NO_THROW(spar::validate(others.view()));
          }
          others.for_each([&](index32 i, T v) { sum[i] = v; });
          s.for_each([&](index32 i, T v) {
            ASSERT_TRUE(same_bits(sum[i], T{}));
            sum[i] = v;
          });
          for (std::size_t e = 0; e < n; ++e) expected[place(e)] = values[e];
          for (std::size_t i = 0; i < dimension; ++i) ASSERT_TRUE(same_bits(sum[i], expected[i])) << i;
        }
      }
    }
  }
}

TYPED_TEST(selector_topk, by_any_number_of_threads) {
  using T = typename TypeParam::type;
  spar::pool pool;
  constexpr std::size_t n = 100'003; // enough work for three threads
  for (const kind which : kinds) {
    const auto input = make_input<T>(n, which, n);
    std::size_t position = 0;
    for (const std::uint64_t k : {std::uint64_t{1}, std::uint64_t{n / 100}, std::uint64_t{n / 2}}) {
      if (!spar_test::runs_case(3, which, position++)) continue;
      const exact_topk alone{.k = k};
      const exact_topk shared{.k = k, .threads = 64};
      ASSERT_TRUE(take<T>(shared, input, pool) == take<T>(alone, input, pool)) << k;
    }
  }
}

TEST(selector_exact_topk, takes_a_share) {
  spar::pool pool;
  const auto count = [&](double density, std::size_t n) {
    std::vector<float> x(n, 1.0F);
    return spar::select(exact_topk{.density = density}, std::span(x), pool).count();
  };
  EXPECT_EQ(count(0.29, 100), 29U); // although 0.29 * 100 is less than 29 in floating point
  EXPECT_EQ(count(0.0001, 1000), 1U);
  EXPECT_EQ(count(1, 1000), 1000U);
  EXPECT_EQ(count(0.5, 0), 0U);
}

template <class Selector>
std::string complaint(const Selector& select, std::size_t n) {
  spar::pool pool;
  std::vector<float> x(n, 2.0F);
  const auto before = x;
  std::string said;
  try {
    select.validate(n);
  } catch (const spar::invalid_argument& e) {
    said = e.what();
  }
  if (!said.empty()) {
    EXPECT_THROW((void)spar::select(select, std::span(x), pool), spar::invalid_argument);
    EXPECT_EQ(x, before);
  }
  return said;
}

TEST(selector_exact_topk, names_what_is_wrong) {
  EXPECT_EQ(complaint(exact_topk{.k = 11}, 10), "the selector's k is 11; expected at most n = 10");
  EXPECT_EQ(complaint(exact_topk{.k = 1}, 0), "the selector's k is 1; expected at most n = 0");
  EXPECT_EQ(complaint(exact_topk{.density = 1.5}, 10), "the selector's density is 1.5; expected a value in [0, 1]");
  EXPECT_EQ(complaint(exact_topk{.density = -0.1}, 10), "the selector's density is -0.1; expected a value in [0, 1]");
  EXPECT_NE(complaint(exact_topk{.density = std::numeric_limits<double>::quiet_NaN()}, 10), "");
  EXPECT_EQ(complaint(exact_topk{.k = 2, .density = 0.5}, 10),
            "expected either k or a density, but k is 2 and the density is 0.5");
  EXPECT_EQ(complaint(exact_topk{.k = 10}, 10), "");
  EXPECT_EQ(complaint(bucket_topk{.k = 1, .bucket = 0}, 10),
            "the selector's buckets have 0 entries; expected at least 1");
  EXPECT_EQ(complaint(bucket_topk{.k = 513}, 10), "the selector's k is 513; expected at most the bucket size, 512");
  EXPECT_EQ(complaint(bucket_topk{.k = 512}, 10), "");
}

TEST(selector_exact_topk, allocates_once) {
  spar_test::counting_resource memory;
  spar::pool pool(memory);
  std::uint64_t first = 0;
  for (const kind which : {kind::normal, kind::mixed, kind::constant, kind::zeros, kind::mostly_zeros, kind::normal}) {
    for (const std::size_t n : {100'000U, 5'000U, 0U}) {
      auto x = make_input<float>(n, which, 8);
      const exact_topk largest{.density = 0.01};
      auto selected = spar::select(largest, std::span(x), pool);
      (void)spar::keep_largest(selected, selected.count() / 2, pool);
    }
    if (first == 0) first = memory.allocations();
  }
  EXPECT_EQ(memory.allocations(), first);
}

} // namespace
