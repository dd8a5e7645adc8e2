// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Slicing and validating coordinate streams.
#include "kernel_reference.hpp"

#include <spar/storage/kernel/slice.hpp>

namespace {

using namespace kernel_test;
using spar::kernel::first_bad_index;
using spar::kernel::slice;

template <class Pair>
class kernel_slice : public ::testing::Test {};
TYPED_TEST_SUITE(kernel_slice, all_pairs);

TYPED_TEST(kernel_slice, every_range_of_a_small_stream) {
  using value = typename TypeParam::value;
  using index = typename TypeParam::index;
  const reference<value, index> map = {{1, value(10)}, {2, value(20)}, {5, value(50)}, {9, value(90)}};
  const entries<value, index> stream(map);
  for (std::uint64_t begin = 0; begin < 12; ++begin) {
    for (std::uint64_t end = 0; end < 12; ++end) {
      reference<value, index> expected;
      for (const auto& [at, v] : map)
        if (begin <= at && at < end) expected[at] = v;
      const auto part = slice(stream.view(), begin, end);
      expect_entries(part.indices.data(), part.values.data(), part.size(), expected);
    }
  }
}

TYPED_TEST(kernel_slice, partition_covers_the_stream) {
  using value = typename TypeParam::value;
  using index = typename TypeParam::index;
  std::mt19937_64 random(2);
  const entries<value, index> stream(random_entries<value, index>(random, 0, 100'000, 3000, 3));
  for (const std::uint64_t owners : {1u, 2u, 3u, 7u, 64u, 1000u}) {
    std::size_t next = 0;
    for (std::uint64_t p = 0; p < owners; ++p) {
      const auto part = slice(stream.view(), p * 100'000 / owners, (p + 1) * 100'000 / owners);
      ASSERT_EQ(part.values.size(), part.size());
      ASSERT_TRUE(part.empty() || part.indices.data() == stream.indices.data() + next);
      ASSERT_TRUE(part.empty() || part.values.data() == stream.values.data() + next);
      next += part.size();
    }
    EXPECT_EQ(next, stream.indices.size());
  }
}

TEST(kernel_slice_limits, end_of_the_32_bit_range) {
  const std::uint32_t indices[] = {0, 7, 0xfffffffeu, 0xffffffffu};
  const float values[] = {1, 2, 3, 4};
  const spar::coo_span<float, std::uint32_t> stream{std::span<const std::uint32_t>(indices),
                                                    std::span<const float>(values)};
  EXPECT_EQ(slice(stream, 0, std::uint64_t{1} << 32).size(), 4u);
  EXPECT_EQ(slice(stream, 0xffffffffu, std::uint64_t{1} << 32).values[0], 4.0f);
  EXPECT_EQ(slice(stream, 0, 0xffffffffu).size(), 3u);
  EXPECT_TRUE(slice(stream, std::uint64_t{1} << 32, std::uint64_t{1} << 40).empty());
}

TEST(kernel_slice_limits, above_the_32_bit_range) {
  const std::uint64_t big = std::uint64_t{1} << 40;
  const std::uint64_t indices[] = {big, big + 1, 2 * big};
  const double values[] = {1, 2, 3};
  const spar::coo_span<double, std::uint64_t> stream{std::span<const std::uint64_t>(indices),
                                                     std::span<const double>(values)};
  EXPECT_EQ(slice(stream, big + 1, 2 * big + 1).size(), 2u);
  EXPECT_TRUE(slice(spar::coo_span<double, std::uint64_t>{}, 0, big).empty());
}

template <class Index>
class kernel_validate : public ::testing::Test {
 protected:
  static std::size_t plain(const std::vector<Index>& indices, std::uint64_t n) {
    for (std::size_t e = 0; e < indices.size(); ++e)
      if (indices[e] >= n || (e > 0 && indices[e] <= indices[e - 1])) return e;
    return indices.size();
  }
  static void expect(const std::vector<Index>& indices, std::uint64_t n) {
    ASSERT_EQ(first_bad_index(std::span<const Index>(indices), n), plain(indices, n));
  }
};
using index_types = ::testing::Types<std::uint32_t, std::uint64_t>;
TYPED_TEST_SUITE(kernel_validate, index_types);

TYPED_TEST(kernel_validate, small) {
  this->expect({}, 0);
  this->expect({}, 5);
  this->expect({0}, 0);
  this->expect({0}, 1);
  this->expect({3, 3}, 9);
  this->expect({3, 2}, 9);
  this->expect({9, 2}, 9);
  this->expect({1, 9, 3}, 9);
}

TYPED_TEST(kernel_validate, one_wrong_index_anywhere) {
  for (const std::size_t count : {1u, 2u, 63u, 64u, 65u, 66u, 129u, 300u}) {
    std::vector<TypeParam> right(count);
    for (std::size_t e = 0; e < count; ++e) right[e] = static_cast<TypeParam>(5 + 2 * e);
    const std::uint64_t n = 5 + 2 * count - 1;
    this->expect(right, n);
    this->expect(right, n - 1);
    this->expect(right, 5 + count);
    for (std::size_t e = 0; e < count; ++e) {
      for (const std::uint64_t wrong :
           {std::uint64_t{0}, 5 + 2 * e - 2, 5 + 2 * e + 2, n, std::uint64_t{0xffffffffu}}) {
        auto indices = right;
        indices[e] = static_cast<TypeParam>(wrong);
        this->expect(indices, n);
        if (this->HasFatalFailure()) FAIL() << "count " << count << ", position " << e << ", index " << wrong;
      }
    }
  }
}

TYPED_TEST(kernel_validate, largest_indices) {
  const auto top = std::numeric_limits<TypeParam>::max();
  this->expect({0, static_cast<TypeParam>(top - 1), top}, std::numeric_limits<std::uint64_t>::max());
  this->expect({top, 0}, std::numeric_limits<std::uint64_t>::max());
  this->expect({static_cast<TypeParam>(0x7fffffff), static_cast<TypeParam>(0x80000000)}, std::uint64_t{1} << 32);
  this->expect({static_cast<TypeParam>(0x80000000), static_cast<TypeParam>(0x7fffffff)}, std::uint64_t{1} << 32);
}

TYPED_TEST(kernel_validate, high_halves_count) {
  if constexpr (sizeof(TypeParam) == 8) {
    const std::uint64_t big = std::uint64_t{1} << 32;
    this->expect({big, 1}, 2 * big);
    this->expect({1, big}, 2 * big);
    this->expect({1, big}, big);
  } else {
    const std::uint32_t indices[] = {0xffffffffu};
    EXPECT_EQ(first_bad_index(std::span<const std::uint32_t>(indices), std::uint64_t{1} << 32), 1u);
  }
}

} // namespace
