// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernels on dense vectors against plain loops.
#include "kernel_reference.hpp"

#include <spar/storage/kernel/dense.hpp>

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

  void expect_gather(const std::vector<value>& dense, std::uint64_t begin) {
    reference<value, index> expected;
    for (std::size_t e = 0; e < dense.size(); ++e)
      if (dense[e] != value{}) expected[static_cast<index>(begin + e)] = dense[e];
    ASSERT_EQ(spar::kernel::count_nonzero(dense.data(), dense.size()), expected.size());
    std::vector<index> indices(expected.size() + 1, index{77});
    std::vector<value> found(expected.size() + 1, value(77));
    const std::size_t count =
        spar::kernel::gather_nonzero(dense.data(), dense.size(), begin, indices.data(), found.data());
    expect_entries(indices.data(), found.data(), count, expected);
    EXPECT_EQ(indices.back(), index{77}) << "the kernel wrote beyond the output";
    EXPECT_EQ(found.back(), value(77)) << "the kernel wrote beyond the output";
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
      ASSERT_EQ(spar::kernel::gather_nonzero(dense.data(), dense.size(), 0, &index, &value), 1u);
      ASSERT_EQ(index, place);
      ASSERT_EQ(std::memcmp(&value, &v, sizeof(T)), 0);
    }
  }
}

} // namespace
