// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// `coalesce` against a reference that reduces the values of each index in the order in which they are given.
#include "kernel_reference.hpp"

#include "../support/counting_resource.hpp"

#include <spar/core/memory/pool.hpp>
#include <spar/core/row.hpp>
#include <spar/storage/coalesce.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace {

template <class Int, class T>
struct given {
  std::vector<Int> indices;
  std::vector<T> values;
};

template <class T>
T random_value(std::mt19937_64& random) {
  if constexpr (spar::is_row<T>) {
    T row{};
    for (auto& each : row.values) each = static_cast<spar::component_of<T>>(std::ldexp(random() % 1000, -4));
    return row;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(random());
  } else {
    // Magnitudes that differ by much: a sum in another order has other bits.
    return static_cast<T>(std::ldexp(static_cast<double>(random() % 4096) - 2048, static_cast<int>(random() % 20) - 8));
  }
}

template <class Int, class T>
given<Int, T> random_entries(std::mt19937_64& random, std::uint64_t n, std::size_t count) {
  given<Int, T> all;
  for (std::size_t e = 0; e < count; ++e) {
    all.indices.push_back(static_cast<Int>(random() % n));
    all.values.push_back(random_value<T>(random));
  }
  return all;
}

template <class T>
bool same_bits(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

template <class Int, class T, class Op>
void expect_as_the_reference(const given<Int, T>& all, std::uint64_t n, Op op) {
  std::map<std::uint64_t, T> expected;
  for (std::size_t e = 0; e < all.values.size(); ++e) {
    const auto [at, first] = expected.try_emplace(static_cast<std::uint64_t>(all.indices[e]), all.values[e]);
    if (!first) at->second = op(at->second, all.values[e]);
  }
  const auto sum = spar::coalesce(*std::pmr::new_delete_resource(), n, all.indices, all.values, op);
  static_assert(std::same_as<decltype(sum.indices()), std::span<const std::make_unsigned_t<Int>>>);
  spar::validate(sum.view());
  ASSERT_EQ(sum.dimension(), n);
  ASSERT_EQ(sum.count(), expected.size());
  std::size_t e = 0;
  for (const auto& [index, value] : expected) {
    ASSERT_EQ(sum.indices()[e], index) << "entry " << e;
    ASSERT_TRUE(same_bits(sum.values()[e], value)) << "index " << index;
    ++e;
  }
}

template <class Pair>
class coalesce : public ::testing::Test {};
/// An operation whose result shows the order of the operands, if it takes values of type T.
template <class T>
using op_for = std::conditional_t<spar::is_row<T>, spar::sum, kernel_test::skew>;
template <class Int, class T>
struct pair {
  using index = Int;
  using value = T;
};
using pairs = ::testing::Types<pair<std::uint32_t, float>, pair<std::int32_t, double>,
                               pair<std::uint64_t, std::int32_t>, pair<std::int64_t, float>,
                               pair<std::uint32_t, spar::row<float, 3>>, pair<long long, spar::row<double, 2>>>;
TYPED_TEST_SUITE(coalesce, pairs);

TYPED_TEST(coalesce, random_entries_of_many_lengths_and_dimensions) {
  using index = typename TypeParam::index;
  using value = typename TypeParam::value;
  std::mt19937_64 random(1);
  std::vector<std::uint64_t> dimensions = {1, 2, 3, 63, 64, 65, 1000, 1024, 1025, 1u << 20, (1u << 20) + 1, 0x7fffffff};
  if constexpr (sizeof(index) == 8) dimensions.insert(dimensions.end(), {1ull << 32, 1ull << 40, (1ull << 63) - 1});
  for (const std::uint64_t n : dimensions) {
    for (const std::size_t count : {0u, 1u, 2u, 3u, 10u, 100u, 1023u, 1024u, 5000u})
      expect_as_the_reference(random_entries<index, value>(random, n, count), n, op_for<value>{});
  }
}

TYPED_TEST(coalesce, ascending_equal_and_descending_indices) {
  using index = typename TypeParam::index;
  using value = typename TypeParam::value;
  std::mt19937_64 random(2);
  given<index, value> all = random_entries<index, value>(random, 500, 700);
  std::sort(all.indices.begin(), all.indices.end());
  expect_as_the_reference(all, 500, op_for<value>{});
  std::reverse(all.indices.begin(), all.indices.end());
  expect_as_the_reference(all, 500, op_for<value>{});
  std::fill(all.indices.begin(), all.indices.end(), static_cast<index>(499));
  expect_as_the_reference(all, 500, op_for<value>{});
}

TEST(coalesce_indices, the_last_index_of_every_width) {
  std::mt19937_64 random(3);
  given<std::uint32_t, float> narrow = random_entries<std::uint32_t, float>(random, std::uint64_t{1} << 32, 3000);
  narrow.indices[7] = narrow.indices[2999] = 0xffffffffU;
  expect_as_the_reference(narrow, std::uint64_t{1} << 32, spar::sum{});
  given<std::uint64_t, float> wide = random_entries<std::uint64_t, float>(random, UINT64_MAX, 3000);
  wide.indices[7] = wide.indices[2999] = UINT64_MAX - 1;
  expect_as_the_reference(wide, UINT64_MAX, spar::sum{});
}

TEST(coalesce_operations, reduces_by_the_operation) {
  std::mt19937_64 random(4);
  const auto all = random_entries<std::uint32_t, float>(random, 100, 1000);
  expect_as_the_reference(all, 100, spar::maximum{});
  expect_as_the_reference(all, 100, spar::minimum{});
  expect_as_the_reference(random_entries<std::uint32_t, std::int64_t>(random, 100, 1000), 100, spar::product{});
}

TEST(coalesce_memory, comes_from_the_resource_and_a_pool_reuses_it) {
  std::mt19937_64 random(5);
  const auto all = random_entries<std::uint32_t, float>(random, 1u << 20, 10'000);
  spar_test::counting_resource upstream;
  spar::pool memory(upstream);
  spar::pool_requests requests;
  memory.charge(requests);
  (void)spar::coalesce(memory, 1u << 20, all.indices, all.values);
  const auto taken = upstream.allocations();
  EXPECT_GT(taken, 0u);
  for (int i = 0; i < 3; ++i) (void)spar::coalesce(memory, 1u << 20, all.indices, all.values);
  EXPECT_EQ(upstream.allocations(), taken);
}

template <class Indices, class Values>
std::string refusal(std::uint64_t n, const Indices& indices, const Values& values) {
  try {
    (void)spar::coalesce(*std::pmr::new_delete_resource(), n, indices, values);
  } catch (const spar::invalid_argument& e) {
    return e.what();
  }
  return "";
}

TEST(coalesce_errors, names_what_is_wrong) {
  const std::vector<float> two{1, 2};
  EXPECT_EQ(refusal(10, std::vector<std::uint32_t>{1, 2, 3}, two), "there are 3 indices, but 2 values");
  EXPECT_EQ(refusal(10, std::vector<std::uint32_t>{3, 10}, two),
            "index 10 at entry 1 is not an index of a vector of dimension 10; expected at least 0 and less than the "
            "dimension");
  EXPECT_EQ(refusal(10, std::vector<std::int64_t>{-3, 10}, two),
            "index -3 at entry 0 is not an index of a vector of dimension 10; expected at least 0 and less than the "
            "dimension");
  EXPECT_EQ(refusal(0, std::vector<std::int32_t>{0, 0}, two),
            "index 0 at entry 0 is not an index of a vector of dimension 0; expected at least 0 and less than the "
            "dimension");
  EXPECT_EQ(refusal((std::uint64_t{1} << 32) + 1, std::vector<std::uint32_t>{0, 1}, two),
            "the dimension 4294967297 is too large for 32-bit indices; use 64-bit indices");
  EXPECT_EQ(refusal(std::uint64_t{1} << 32, std::vector<std::uint32_t>{7, 0xffffffffU}, two), "");
}

} // namespace
