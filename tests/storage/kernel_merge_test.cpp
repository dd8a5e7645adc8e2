// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The merge of two coordinate streams against std::map.
#include "kernel_reference.hpp"
#include "support/extent.hpp"

#include <spar/storage/kernel/merge.hpp>

namespace {

using namespace kernel_test;

template <class Pair>
class kernel_merge : public ::testing::Test {
 protected:
  using value = typename Pair::value;
  using index = typename Pair::index;
  using map = reference<value, index>;

  template <class Op>
  void expect_merge(const map& left, const map& right, Op op) {
    const entries<value, index> a(left), b(right);
    const std::size_t room = left.size() + right.size();
    constexpr auto guard = static_cast<value>(77);
    std::vector<index> indices(room + 1, index{77});
    std::vector<value> values(room + 1, guard);
    const std::size_t count = spar::kernel::merge(a.view(), b.view(), indices.data(), values.data(), op);
    expect_entries(indices.data(), values.data(), count, fold<value, index>({left, right}, op));
    EXPECT_EQ(indices[room], index{77}) << "the merge wrote beyond the output";
    EXPECT_EQ(values[room], guard) << "the merge wrote beyond the output";
  }

  void expect_all(const map& left, const map& right) {
    expect_merge(left, right, skew{});
    expect_merge(right, left, skew{});
    expect_merge(left, right, spar::sum{});
    expect_merge(left, right, spar::product{});
    expect_merge(left, right, spar::minimum{});
    expect_merge(left, right, spar::maximum{});
  }

  map make(std::uint64_t begin, std::uint64_t range, std::size_t count, std::uint64_t run = 1) {
    return random_entries<value, index>(random_, begin, range, count, run);
  }

  map every(std::uint64_t begin, std::uint64_t step, std::size_t count) {
    map result;
    for (std::size_t e = 0; e < count; ++e) result[static_cast<index>(begin + e * step)] = random_value<value>(random_);
    return result;
  }

  std::mt19937_64 random_{11};
};
TYPED_TEST_SUITE(kernel_merge, all_pairs);

TYPED_TEST(kernel_merge, empty) {
  this->expect_all({}, {});
  this->expect_all({}, this->every(3, 2, 5));
  this->expect_all(this->every(3, 2, 500), {});
}

TYPED_TEST(kernel_merge, single) {
  this->expect_all(this->every(7, 1, 1), this->every(7, 1, 1));
  this->expect_all(this->every(7, 1, 1), this->every(8, 1, 1));
  this->expect_all(this->every(8, 1, 1), this->every(7, 1, 1));
}

TYPED_TEST(kernel_merge, one_against_many) {
  for (const std::uint64_t at : {0u, 1u, 1000u, 2999u, 3000u, 3001u})
    this->expect_all(this->every(at, 1, 1), this->every(0, 2, 1500));
}

TYPED_TEST(kernel_merge, identical) {
  for (const std::size_t count : {2u, 63u, 64u, 65u, 128u, 1000u, 9000u})
    this->expect_all(this->every(5, 3, count), this->every(5, 3, count));
}

TYPED_TEST(kernel_merge, identical_but_for_one_index_of_a_run) {
  for (const std::uint64_t missing : {0u, 1u, 62u, 63u, 64u, 100u}) {
    auto left = this->every(5, 3, 200);
    left.erase(static_cast<typename TypeParam::index>(5 + 3 * missing));
    left[static_cast<typename TypeParam::index>(6 + 3 * missing)] = {};
    this->expect_all(left, this->every(5, 3, 200));
  }
}

TYPED_TEST(kernel_merge, disjoint_ranges) {
  for (const std::size_t count : {1u, 63u, 64u, 65u, 1000u})
    this->expect_all(this->every(0, 1, count), this->every(count, 1, 300));
}

TYPED_TEST(kernel_merge, ranges_that_touch_in_one_index) {
  for (const std::size_t count : {64u, 65u, 1000u})
    this->expect_all(this->every(0, 1, count), this->every(count - 1, 1, 300));
}

TYPED_TEST(kernel_merge, interleaved) {
  for (const std::size_t count : {5u, 100u, 300u, 5000u}) {
    this->expect_all(this->every(0, 2, count), this->every(1, 2, count));
    this->expect_all(this->every(0, 2, count), this->every(0, 3, count));
  }
}

TYPED_TEST(kernel_merge, full_against_sparse) { this->expect_all(this->every(0, 1, 6000), this->make(0, 6000, 500)); }

TYPED_TEST(kernel_merge, largest_indices) {
  constexpr std::uint64_t top = std::numeric_limits<typename TypeParam::index>::max();
  this->expect_all(this->every(top, 1, 1), this->every(top, 1, 1));
  this->expect_all(this->every(top - 999, 1, 1000), this->make(top - 4999, 5000, 900));
  this->expect_all(this->every(0, 1, 1), this->every(top, 1, 1));
}

TYPED_TEST(kernel_merge, indices_around_2_to_the_31) {
  for (const std::uint64_t begin : {0x7fffe000u, 0x7ffff000u, 0x80000000u})
    this->expect_all(this->make(begin, 6000, 2000), this->make(begin, 6000, 2500));
}

TYPED_TEST(kernel_merge, indices_above_32_bits) {
  if constexpr (sizeof(typename TypeParam::index) == 8) {
    const std::uint64_t begin = (std::uint64_t{1} << 32) - 2000;
    this->expect_all(this->make(begin, 4000, 1500), this->make(begin, 4000, 1500));
    this->expect_all(this->every(5, std::uint64_t{1} << 32, 700), this->every(5, std::uint64_t{1} << 33, 700));
  } else {
    SUCCEED() << "32-bit indices do not reach this range";
  }
}

TYPED_TEST(kernel_merge, random_patterns) {
  for (int trial = 0; trial < (spar_test::is_full() ? 60 : spar_test::is_shortened ? 12 : 20); ++trial) {
    const std::uint64_t range = 1 + this->random_() % 30000, run = 1 + this->random_() % (trial % 3 == 0 ? 300 : 2);
    const auto left = this->make(17, range, this->random_() % (range + 1), run);
    const auto right = this->make(17, range, this->random_() % (range + 1) / (trial % 4 == 0 ? 50 : 1), run);
    this->expect_merge(left, right, skew{});
    this->expect_merge(right, left, spar::sum{});
    if (this->HasFatalFailure()) FAIL() << "trial " << trial;
  }
}

TEST(kernel_merge_values, absent_entries_are_not_zero) {
  // -0 must stay -0; adding 0 for an absent entry would give +0.
  const std::uint32_t indices[] = {1, 2};
  const float values[] = {-0.0f, -0.0f};
  const spar::coo_span<float, std::uint32_t> left{std::span(indices).first(1), std::span(values).first(1)};
  const spar::coo_span<float, std::uint32_t> right{std::span(indices).last(1), std::span(values).last(1)};
  std::uint32_t out_i[2];
  float out_v[2];
  ASSERT_EQ(spar::kernel::merge(left, right, out_i, out_v, spar::sum{}), 2u);
  EXPECT_TRUE(std::signbit(out_v[0]) && std::signbit(out_v[1]));
}

TEST(kernel_merge_values, tiny_values_are_kept) {
  const std::uint32_t indices[] = {4};
  const float tiny[] = {1e-30f}, denormal[] = {std::numeric_limits<float>::denorm_min()};
  const spar::coo_span<float, std::uint32_t> left{std::span<const std::uint32_t>(indices),
                                                  std::span<const float>(tiny)};
  const spar::coo_span<float, std::uint32_t> right{std::span<const std::uint32_t>(indices),
                                                   std::span<const float>(denormal)};
  std::uint32_t out_i[2];
  float out_v[2];
  ASSERT_EQ(spar::kernel::merge(left, left, out_i, out_v, spar::sum{}), 1u);
  EXPECT_EQ(out_v[0], 2e-30f);
  ASSERT_EQ(spar::kernel::merge(right, right, out_i, out_v, spar::sum{}), 1u);
  EXPECT_EQ(out_v[0], 2 * std::numeric_limits<float>::denorm_min());
}

} // namespace
