// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Element types and reduction operations.
#include <spar/core/element.hpp>
#include <spar/core/op.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>

namespace {

// --- element types ---

TEST(element, codes_are_different_and_not_zero) {
  const std::array codes{spar::code_of<float>,        spar::code_of<double>,        spar::code_of<std::int32_t>,
                         spar::code_of<std::int64_t>, spar::code_of<std::uint32_t>, spar::code_of<std::uint64_t>};
  for (std::size_t a = 0; a < codes.size(); ++a) {
    EXPECT_NE(codes[a], spar::element_code{});
    for (std::size_t b = 0; b < a; ++b) EXPECT_NE(codes[a], codes[b]);
  }
}

// --- operations ---

/// Wraps a type: GCC 12's library has no type information of _Float16, which GoogleTest would need.
template <class T>
struct named {
  using type = T;
};

template <class T>
class operations : public testing::Test {};
#ifdef SPAR_HAS_HALF
using elements = testing::Types<named<float>, named<double>, named<std::int32_t>, named<std::int64_t>,
                                named<std::uint32_t>, named<std::uint64_t>, named<spar::half>>;
#else
using elements = testing::Types<named<float>, named<double>, named<std::int32_t>, named<std::int64_t>,
                                named<std::uint32_t>, named<std::uint64_t>>;
#endif
TYPED_TEST_SUITE(operations, elements);

template <class T, class Op>
void expect_neutral(Op op) {
  const T neutral = op.template neutral<T>();
  for (const int x : {0, 1, 2, 5, 100}) {
    const T value = static_cast<T>(x);
    EXPECT_TRUE(op(value, neutral) == value) << Op::name << ' ' << x;
    EXPECT_TRUE(op(neutral, value) == value) << Op::name << ' ' << x;
    if (!std::is_unsigned_v<T>) {
      const T negative = static_cast<T>(-x);
      EXPECT_TRUE(op(negative, neutral) == negative) << Op::name << ' ' << -x;
      EXPECT_TRUE(op(neutral, negative) == negative) << Op::name << ' ' << -x;
    }
  }
}

TYPED_TEST(operations, have_a_neutral_element) {
  using value = typename TypeParam::type;
  expect_neutral<value>(spar::sum{});
  expect_neutral<value>(spar::product{});
  expect_neutral<value>(spar::minimum{});
  expect_neutral<value>(spar::maximum{});
  expect_neutral<value>(spar::average{});
}

TYPED_TEST(operations, compute) {
  using value = typename TypeParam::type;
  const auto a = static_cast<value>(3);
  const auto b = static_cast<value>(5);
  EXPECT_TRUE(spar::sum{}(a, b) == static_cast<value>(8));
  EXPECT_TRUE(spar::product{}(a, b) == static_cast<value>(15));
  EXPECT_TRUE(spar::minimum{}(a, b) == a && spar::minimum{}(b, a) == a);
  EXPECT_TRUE(spar::maximum{}(a, b) == b && spar::maximum{}(b, a) == b);
  EXPECT_TRUE(spar::average::finalize(static_cast<value>(12), 4) == static_cast<value>(3));
}

TYPED_TEST(operations, extremes_are_neutral_for_the_extremes) {
  using value = typename TypeParam::type;
  using limits = std::numeric_limits<value>;
  if constexpr (limits::is_specialized) {
    EXPECT_TRUE(spar::minimum{}(limits::max(), spar::minimum::neutral<value>()) == limits::max());
    EXPECT_TRUE(spar::maximum{}(limits::lowest(), spar::maximum::neutral<value>()) == limits::lowest());
  } else { // 16-bit types for which the standard library has no numeric_limits
    const auto infinite = static_cast<value>(std::numeric_limits<float>::infinity());
    EXPECT_TRUE(spar::minimum{}(infinite, spar::minimum::neutral<value>()) == infinite);
    EXPECT_TRUE(spar::maximum{}(static_cast<value>(-infinite), spar::maximum::neutral<value>()) == -infinite);
  }
}

TEST(minimum_and_maximum, nan_is_never_lost) {
  constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (const double x : {0.0, 1.0, -1.0, infinity, -infinity, nan_value}) {
    EXPECT_TRUE(std::isnan(spar::minimum{}(x, nan_value))) << x;
    EXPECT_TRUE(std::isnan(spar::minimum{}(nan_value, x))) << x;
    EXPECT_TRUE(std::isnan(spar::maximum{}(x, nan_value))) << x;
    EXPECT_TRUE(std::isnan(spar::maximum{}(nan_value, x))) << x;
  }
}

TEST(sum_and_product, wrap_around_instead_of_overflowing) {
  constexpr auto largest = std::numeric_limits<std::int32_t>::max();
  constexpr auto smallest = std::numeric_limits<std::int32_t>::min();
  EXPECT_EQ(spar::sum{}(largest, 1), smallest);
  EXPECT_EQ(spar::product{}(largest, 2), -2);
  EXPECT_EQ(spar::sum{}(std::numeric_limits<std::int64_t>::min(), std::int64_t{-1}),
            std::numeric_limits<std::int64_t>::max());
}

TEST(average, integers_round_towards_zero) {
  EXPECT_EQ(spar::average::finalize(std::int32_t{-7}, 2), -3);
  EXPECT_EQ(spar::average::finalize(std::int64_t{7}, 3), 2);
}

#ifdef SPAR_HAS_HALF
TEST(average, of_16_bit_floats_on_more_ranks_than_they_can_count) {
  const auto total = static_cast<spar::half>(30000);
  // Of the numbers of ranks, half rounds 2051 to 2052, and 70000 to infinity.
  EXPECT_TRUE(spar::average::finalize(total, 2051) == static_cast<spar::half>(14.625F));
  EXPECT_TRUE(spar::average::finalize(total, 70000) == static_cast<spar::half>(30000.0F / 70000.0F));
}
#endif

TEST(operations_by_name, differ) {
  const std::array<std::string_view, 5> names{spar::sum::name, spar::product::name, spar::minimum::name,
                                              spar::maximum::name, spar::average::name};
  for (std::size_t a = 0; a < names.size(); ++a)
    for (std::size_t b = 0; b < a; ++b) EXPECT_NE(names[a], names[b]);
}

} // namespace
