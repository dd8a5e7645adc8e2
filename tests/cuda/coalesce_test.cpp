// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The kernels that coalesce entries, on the host, against a loop. On a GPU, the sort is CUB's.
#include "kernel_test.hpp"
#include "support/extent.hpp"

#include <spar/core/op.hpp>
#include <spar/cuda/kernel/coalesce.cuh>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <string_view>
#include <type_traits>
#include <vector>

namespace {

using kernel_test::unaligned;
using kernel_test::vector;

/// An operation whose result shows the order of the operands.
struct skew {
  static constexpr std::string_view name = "skew";
  template <class T>
  static constexpr T neutral() {
    return T{};
  }
  template <class T>
  SPAR_HOST_DEVICE T operator()(T a, T b) const {
    return static_cast<T>(a + a + b);
  }
};

template <class T, class Index, class Op = spar::sum>
void compare(const vector<Index>& indices, const vector<T>& values, std::uint64_t n, Op op = {}) {
  SCOPED_TRACE(testing::Message() << indices.size() << " entries below " << n);
  std::map<Index, T> expected; // a loop in the order of the input, as the host's `coalesce`
  for (std::size_t e = 0; e < indices.size(); ++e) {
    const auto [at, is_first] = expected.try_emplace(indices[e], values[e]);
    if (!is_first) at->second = op(at->second, values[e]);
  }

  const std::size_t count = indices.size();
  unaligned<Index> at(indices), out_i(count);
  unaligned<T> x(values), out_v(count);
  vector<spar::kernel::coalesced_entries> found(1, {77, 1});
  vector<std::max_align_t> memory(spar::kernel::coalesce_bytes<T, Index>(count, n) / sizeof(std::max_align_t) + 1);
  spar::kernel::start_coalesce<T, Index>({at.data(), x.data(), count}, n, out_i.data(), out_v.data(), op, found.data(),
                                         memory.data(), nullptr);
  kernel_test::finish();
  ASSERT_EQ(found[0].count, expected.size());
  EXPECT_EQ(found[0].out_of_range, 0U);
  const auto got_i = out_i.copy();
  const auto got_v = out_v.copy();
  std::size_t e = 0;
  for (const auto& [index, value] : expected) {
    ASSERT_EQ(got_i[e], index) << "entry " << e;
    ASSERT_TRUE(kernel_test::same_bits(got_v[e], value)) << "entry " << e;
    ++e;
  }
}

template <class T, class Index, class Op = spar::sum>
void compare_random(std::size_t count, std::uint64_t n, std::uint64_t seed, Op op = {}) {
  std::mt19937_64 random(seed);
  vector<Index> indices(count);
  vector<T> values(count);
  for (Index& i : indices) i = static_cast<Index>(random() % n);
  for (T& v : values) { // of very different magnitudes: a sum in another order has other bits
    if constexpr (std::is_integral_v<T>)
      v = static_cast<T>(random() % 2001) - 1000;
    else
      v = std::ldexp(static_cast<T>(random() % 4096) - 2048, static_cast<int>(random() % 20) - 8);
  }
  compare<T, Index>(indices, values, n, op);
}

TEST(device_coalesce, of_every_size_around_a_tile_has_the_bits_of_a_loop) {
  unsigned number = 0;
  for (const std::size_t count : {0U, 1U, 2U, 31U, 33U, 4095U, 4096U, 4097U, 8193U}) {
    for (const std::uint64_t n : {1U, 2U, 60U, 5000U, 1U << 20}) {
      if (spar_test::runs_case(2, number++)) compare_random<float, std::uint32_t>(count, n, count + n, skew{});
    }
  }
}

TEST(device_coalesce, of_every_type_has_the_bits_of_a_loop) {
  compare_random<float, std::uint32_t>(5000, std::uint64_t{1} << 32, 1);
  compare_random<float, std::uint64_t>(5000, std::uint64_t{1} << 40, 2);
  compare_random<double, std::uint32_t>(5000, 700, 3, skew{});
  compare_random<double, std::uint64_t>(5000, 700, 4);
  compare_random<std::int32_t, std::uint32_t>(5000, 700, 5, spar::maximum{});
  compare_random<std::int64_t, std::uint64_t>(5000, 700, 6);
}

TEST(device_coalesce, reduces_an_index_whose_entries_have_many_tiles) {
  compare_random<float, std::uint32_t>(3 * 4096 + 7, 1, 7);
  vector<std::uint32_t> indices(9000, 5);
  vector<float> values(9000);
  for (std::size_t e = 0; e < values.size(); ++e) values[e] = 1 / static_cast<float>(e + 1);
  for (const std::size_t other : {0U, 1U, 4095U, 4096U, 8998U, 8999U}) {
    indices[other] = other % 2 == 0 ? 3 : 9;
    compare(indices, values, 10);
  }
}

TEST(device_coalesce, keeps_ascending_indices_and_special_values) {
  constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  vector<std::uint32_t> indices;
  vector<float> values;
  for (std::uint32_t i = 0; i < 600; ++i) {
    for (const float v : {1.0F, -0.0F, nan, inf, -inf}) indices.push_back(7 * i), values.push_back(v);
    indices.back() += 1;
  }
  compare(indices, values, 4500);
  std::reverse(indices.begin(), indices.end());
  compare(indices, values, 4500);
  compare<float, std::uint32_t>({0xffffffff, 0, 0xffffffff}, {-0.0F, -0.0F, -0.0F}, std::uint64_t{1} << 32);
}

std::uint32_t out_of_range(const vector<std::uint32_t>& indices, std::uint64_t n) {
  const std::size_t count = indices.size();
  vector<float> values(count, 1), out_v(count);
  vector<std::uint32_t> out_i(count);
  vector<spar::kernel::coalesced_entries> found(1, {77, 77}); // one element by a default crashes nvcc 13
  vector<std::max_align_t> memory(
      spar::kernel::coalesce_bytes<float, std::uint32_t>(count, n) / sizeof(std::max_align_t) + 1);
  spar::kernel::start_coalesce<float, std::uint32_t>({indices.data(), values.data(), count}, n, out_i.data(),
                                                     out_v.data(), spar::sum{}, found.data(), memory.data(), nullptr);
  kernel_test::finish();
  return found[0].out_of_range;
}

TEST(device_coalesce, tells_whether_an_index_is_out_of_range) {
  vector<std::uint32_t> indices(5000, 8);
  EXPECT_EQ(out_of_range(indices, 9), 0U);
  EXPECT_EQ(out_of_range(indices, 8), 1U);
  indices[4321] = 0xffffffff; // what -1 becomes
  EXPECT_EQ(out_of_range(indices, 9), 1U);
  EXPECT_EQ(out_of_range(vector<std::uint32_t>(1), 0), 1U);
}

TEST(device_coalesce, does_not_depend_on_the_order_of_threads_and_blocks) {
  for (std::uint64_t seed = 1; seed <= (spar_test::runs_all_cases() ? 10 : 2); ++seed) {
    kernel_test::set_order(seed, 1 + static_cast<unsigned>(seed % 8));
    compare_random<float, std::uint32_t>(20'000, 3000, seed);
  }
}

} // namespace
