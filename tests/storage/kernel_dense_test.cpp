// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernels on dense vectors against plain loops.
#include "kernel_reference.hpp"

#include <spar/storage/codec.hpp>
#include <spar/storage/kernel/dense.hpp>
#include <spar/storage/kernel/nonzero.hpp>
#include <spar/storage/sparse_stream.hpp>

namespace {

using namespace kernel_test;

template <class Pair>
class kernel_dense : public ::testing::Test {
 protected:
  using value = typename Pair::value;
  using index = typename Pair::index;

  std::vector<value> values(std::size_t n) {
    std::vector<value> result(n);
    for (auto& v : result) v = random_value<value>(random_);
    return result;
  }

  static void expect_same(const std::vector<value>& got, const std::vector<value>& expected) {
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t e = 0; e < got.size(); ++e) ASSERT_TRUE(same(got[e], expected[e])) << "entry " << e;
  }

  template <class Op>
  void expect_pointwise(std::size_t n, Op op) {
    const auto left = values(n), right = values(n);
    auto expected = left;
    for (std::size_t e = 0; e < n; ++e) expected[e] = op(left[e], right[e]);
    auto out = values(n);
    spar::kernel::combine(out.data(), left.data(), right.data(), n, op);
    expect_same(out, expected);
    out = left;
    spar::kernel::reduce(out.data(), right.data(), n, op);
    expect_same(out, expected);
    out = right;
    spar::kernel::reduce_left(out.data(), left.data(), n, op);
    expect_same(out, expected);
  }

  void expect_scatter(std::uint64_t begin, std::size_t n, const reference<value, index>& map) {
    const entries<value, index> stream(map);
    const auto before = values(n);
    auto folded = before, assigned = before;
    for (const auto& [at, v] : map) {
      const auto place = static_cast<std::size_t>(at - begin);
      folded[place] = skew{}(folded[place], v);
      assigned[place] = v;
    }
    auto dense = before;
    spar::kernel::scatter(stream.view(), begin, dense.data(), skew{});
    expect_same(dense, folded);
    dense = before;
    spar::kernel::scatter_assign(stream.view(), begin, dense.data());
    expect_same(dense, assigned);
  }

  /// The entries `map` written over, and reduced into, the n values of a dense vector.
  void expect_written(std::size_t n, const reference<value, index>& map) {
    const entries<value, index> stream(map);
    const auto view = spar::stream_view<value, index>::sparse(n, stream.indices, stream.values);
    const auto before = values(n);
    const auto writes = [&](auto op) {
      std::vector<value> expected(n, op.template neutral<value>());
      for (const auto& [at, v] : map) expected[static_cast<std::size_t>(at)] = v;
      auto dense = before;
      view.to_dense(std::span<value>(dense), op);
      expect_same(dense, expected);
    };
    writes(spar::sum{});
    writes(spar::product{});
    auto expected = before;
    for (const auto& [at, v] : map)
      expected[static_cast<std::size_t>(at)] = skew{}(before[static_cast<std::size_t>(at)], v);
    auto dense = before;
    view.reduce_into(std::span<value>(dense), skew{});
    expect_same(dense, expected);
    std::vector<value> longer(n + 1);
    EXPECT_THROW(view.reduce_into(std::span<value>(longer), spar::sum{}), spar::invalid_argument);
    EXPECT_THROW(view.to_dense(std::span<value>(longer), spar::sum{}), spar::invalid_argument);
  }

  void expect_gather(const std::vector<value>& dense, std::uint64_t begin) {
    reference<value, index> expected;
    for (std::size_t e = 0; e < dense.size(); ++e)
      if (dense[e] != value{}) expected[static_cast<index>(begin + e)] = dense[e];
    ASSERT_EQ(spar::kernel::count_nonzero(dense.data(), dense.size()), expected.size());
    for (const std::size_t room : {expected.size(), expected.size() / 2}) {
      std::vector<index> indices(room + 1, index{77});
      std::vector<value> found(room + 1, value(77));
      auto x = dense;
      const spar::kernel::taken taken = spar::kernel::take_nonzero<spar::kernel::negative_zeros::keep>(
          x.data(), x.size(), begin, indices.data(), found.data(), room);
      EXPECT_EQ(indices.back(), index{77}) << "the kernel wrote beyond the output";
      EXPECT_EQ(found.back(), value(77)) << "the kernel wrote beyond the output";
      ASSERT_LE(taken.count, room);
      ASSERT_EQ(taken.seen == x.size(), taken.count == expected.size());
      reference<value, index> first;
      for (const auto& [at, v] : expected)
        if (at - begin < taken.seen) first[at] = v;
      expect_entries(indices.data(), found.data(), taken.count, first);
      for (std::size_t e = 0; e < x.size(); ++e)
        ASSERT_TRUE(same(x[e], e < taken.seen && dense[e] != value{} ? value{} : dense[e]));
      if (taken.seen < x.size()) {
        ASSERT_GT(taken.count + 256, room) << "the kernel stopped too early";
      }
    }
  }

  std::mt19937_64 random_{23};
};
TYPED_TEST_SUITE(kernel_dense, all_pairs);

TYPED_TEST(kernel_dense, pointwise_kernels_keep_the_order_of_operands) {
  for (const std::size_t n : {0u, 1u, 15u, 16u, 17u, 31u, 32u, 100u, 1000u}) {
    this->expect_pointwise(n, skew{});
    this->expect_pointwise(n, spar::sum{});
    this->expect_pointwise(n, spar::product{});
    this->expect_pointwise(n, spar::minimum{});
    this->expect_pointwise(n, spar::maximum{});
  }
}

TYPED_TEST(kernel_dense, scatter_random) {
  for (const std::uint64_t begin : {std::uint64_t{0}, std::uint64_t{1000}, (std::uint64_t{1} << 32) - 5000}) {
    for (const std::size_t count : {0u, 1u, 15u, 16u, 17u, 200u, 4000u}) {
      this->expect_scatter(
          begin, 5000,
          random_entries<typename TypeParam::value, typename TypeParam::index>(this->random_, begin, 5000, count, 1));
      this->expect_scatter(
          begin, 5000,
          random_entries<typename TypeParam::value, typename TypeParam::index>(this->random_, begin, 5000, count, 60));
    }
  }
}

TYPED_TEST(kernel_dense, scatter_full) {
  reference<typename TypeParam::value, typename TypeParam::index> map;
  for (unsigned e = 0; e < 1000; ++e) map[e] = random_value<typename TypeParam::value>(this->random_);
  this->expect_scatter(0, 1000, map);
}

TYPED_TEST(kernel_dense, written_in_windows) {
  using type = typename TypeParam::value;
  const std::size_t window = 65536 / sizeof(type);
  for (const std::size_t n :
       {std::size_t{0}, std::size_t{1}, std::size_t{31}, window - 1, window, window + 1, 3 * window + 5}) {
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, n / 50, n})
      this->expect_written(n,
                           random_entries<type, typename TypeParam::index>(this->random_, 0, n, std::min(count, n), 1));
  }
}

TYPED_TEST(kernel_dense, scatter_above_32_bits) {
  if constexpr (sizeof(typename TypeParam::index) == 8) {
    const std::uint64_t begin = std::uint64_t{5} << 32;
    this->expect_scatter(
        begin, 3000,
        random_entries<typename TypeParam::value, typename TypeParam::index>(this->random_, begin, 3000, 500, 20));
  } else {
    const std::uint64_t begin = (std::uint64_t{1} << 32) - 100;
    reference<typename TypeParam::value, typename TypeParam::index> map;
    for (std::uint64_t e = begin; e < begin + 100; e += 1 + e % 3) map[static_cast<std::uint32_t>(e)] = {};
    this->expect_scatter(begin, 100, map);
  }
}

TYPED_TEST(kernel_dense, gather_at_every_density) {
  using type = typename TypeParam::value;
  for (const std::size_t n : {0u, 1u, 63u, 64u, 65u, 4095u, 4096u, 4097u, 9000u}) {
    for (const unsigned period : {1u, 2u, 3u, 20u, 1000u}) {
      std::vector<type> dense(n);
      for (auto& v : dense) v = this->random_() % period == 0 ? random_value<type>(this->random_) : type{};
      this->expect_gather(dense, 0);
      this->expect_gather(dense, 123'456);
    }
    this->expect_gather(std::vector<type>(n), 5);
    this->expect_gather(std::vector<type>(n, type(3)), 5);
  }
}

TYPED_TEST(kernel_dense, gather_near_the_last_index) {
  const std::uint64_t begin = std::uint64_t{std::numeric_limits<typename TypeParam::index>::max()} - 99;
  this->expect_gather(std::vector<typename TypeParam::value>(100, typename TypeParam::value(1)), begin);
}

/// Wraps a type: GCC 12 has no type name for _Float16, which the test's name would need.
template <class T>
struct tag {
  using type = T;
};

template <class Tag>
class kernel_gather_values : public ::testing::Test {};
using spar::kernel::negative_zeros;
using floating = ::testing::Types<tag<float>, tag<double>
#ifdef SPAR_HAS_HALF
                                  ,
                                  tag<spar::half>
#endif
                                  >;
TYPED_TEST_SUITE(kernel_gather_values, floating);

TYPED_TEST(kernel_gather_values, only_zeros_are_dropped) {
  using T = typename TypeParam::type;
  const T nan = static_cast<T>(std::numeric_limits<float>::quiet_NaN());
  const T inf = static_cast<T>(std::numeric_limits<float>::infinity());
  T denormal{};
  const unsigned char one = 1;
  std::memcpy(&denormal, &one, 1);
  std::vector<T> kept = {nan, inf, -inf, denormal, -denormal};
  if (sizeof(T) > 2) kept.push_back(static_cast<T>(1e-30f));
  for (std::size_t place = 0; place < 70; ++place) { // inside a whole block of 64 and behind it
    for (const T v : kept) {
      std::vector<T> dense(70, T(0));
      dense[(place + 1) % 70] = -T(0);
      dense[place] = v;
      std::uint32_t index = 0;
      T value{};
      ASSERT_EQ(spar::kernel::count_nonzero(dense.data(), dense.size()), 1u);
      auto kept_signs = dense;
      const auto taken = spar::kernel::take_nonzero<negative_zeros::keep>(kept_signs.data(), 70, 0, &index, &value, 1);
      ASSERT_EQ(taken.count, 1u);
      ASSERT_EQ(index, place);
      ASSERT_EQ(std::memcmp(&value, &v, sizeof(T)), 0);
      ASSERT_TRUE(std::signbit(static_cast<float>(kept_signs[(place + 1) % 70])));
      spar::kernel::take_nonzero<negative_zeros::clear>(dense.data(), 70, 0, &index, &value, 1);
      ASSERT_EQ(index, place);
      for (const T zero : dense) ASSERT_FALSE(std::signbit(static_cast<float>(zero)));
    }
  }
}

TYPED_TEST(kernel_gather_values, every_negative_zero_is_cleared) {
  using T = typename TypeParam::type;
  for (const std::size_t n : {1u, 255u, 256u, 257u, 700u}) {
    for (std::size_t place = 0; place < n; place += 1 + place / 3) {
      std::vector<T> dense(n);
      dense[place] = -T(0);
      std::uint32_t index = 77;
      T value{};
      ASSERT_EQ(spar::kernel::take_nonzero<negative_zeros::clear>(dense.data(), n, 0, &index, &value, 0).seen, n);
      for (const T zero : dense) ASSERT_FALSE(std::signbit(static_cast<float>(zero)));
    }
  }
}

/// Against integers of 128 bits: each double is a whole number of at most 113 bits.
TEST(kernel_rounding_error, of_doubles_is_added_with_one_rounding) {
  __extension__ using whole = __int128;
  std::mt19937_64 random(3);
  std::vector<double> got(50'000), exact(got.size()), decoded(got.size()), expected(got.size());
  for (std::size_t e = 0; e < got.size(); ++e) {
    const auto draw = [&](double& value) {
      const auto digits = static_cast<std::int64_t>(random() >> 11) * (random() % 2 == 0 ? 1 : -1);
      value = std::ldexp(static_cast<double>(digits), static_cast<int>(random() % 61));
      return static_cast<whole>(value);
    };
    const whole sum = draw(got[e]) + draw(exact[e]) - draw(decoded[e]);
    expected[e] = static_cast<double>(sum);
  }
  spar::kernel::add_difference(got.data(), exact.data(), decoded.data(), got.size());
  EXPECT_EQ(got, expected);

  const double most = std::numeric_limits<double>::max(), infinite = std::numeric_limits<double>::infinity();
  got = {most, infinite, most, 1};
  exact = {most, 1, most, infinite};
  decoded = {0, 0, most / 2, 1};
  spar::kernel::add_difference(got.data(), exact.data(), decoded.data(), 4);
  EXPECT_EQ(got, (std::vector<double>{infinite, infinite, infinite, 1}));
}

TEST(kernel_nonzero, a_sample_tells_full_vectors_from_sparse_ones) {
  std::mt19937_64 random(5);
  for (const std::size_t n : {std::size_t{1} << 14, std::size_t{100'001}}) {
    std::vector<double> x(n);
    EXPECT_FALSE(spar::kernel::seems_fuller(x.data(), n, 0));
    for (double& value : x) value = random() % 2 == 0 ? 1 : 0;
    EXPECT_TRUE(spar::kernel::seems_fuller(x.data(), n, n / 4));
    EXPECT_FALSE(spar::kernel::seems_fuller(x.data(), n, n - n / 4));
  }
  const std::vector<double> few(1000, 1.0);
  EXPECT_FALSE(spar::kernel::seems_fuller(few.data(), few.size(), 0)) << "a short vector is not sampled";
}

} // namespace
