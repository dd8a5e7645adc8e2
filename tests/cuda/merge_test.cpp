// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The kernel that merges two streams, on the host, against the host's own version.
#include "kernel_test.hpp"
#include "support/extent.hpp"

#include <spar/core/memory/pool.hpp>
#include <spar/core/op.hpp>
#include <spar/cuda/kernel/merge.cuh>
#include <spar/cuda/kernel/merge_many.cuh>
#include <spar/storage/kernel/magnitude.hpp>
#include <spar/storage/kernel/merge.hpp>
#include <spar/storage/kernel/merge_many.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

namespace {

using kernel_test::unaligned;
using kernel_test::vector;

template <class T, class Index>
struct coo {
  vector<Index> indices;
  vector<T> values;

  friend bool operator==(const coo& a, const coo& b) {
    return a.indices == b.indices && std::ranges::equal(a.values, b.values, kernel_test::same_bits<T>);
  }
};

template <class T, class Index>
struct unaligned_coo {
  explicit unaligned_coo(std::size_t n) : indices(n), values(n) {}
  explicit unaligned_coo(const coo<T, Index>& x) : indices(x.indices), values(x.values) {}

  spar::kernel::device_coo<T, Index> first(std::uint64_t count) { return {indices.data(), values.data(), count}; }
  [[nodiscard]] coo<T, Index> copy(std::uint64_t count) const {
    coo<T, Index> x{indices.copy(), values.copy()};
    x.indices.resize(count), x.values.resize(count);
    return x;
  }

  unaligned<Index> indices;
  unaligned<T> values;
};

template <class T, class Index, class Op>
coo<T, Index> by_kernel(const coo<T, Index>& a, const coo<T, Index>& b, Op op) {
  const std::size_t n = a.indices.size() + b.indices.size();
  unaligned_coo<T, Index> left(a), right(b), out(n);
  unaligned<std::uint64_t> words(spar::kernel::merge_words<T, Index>(n)), counted(1);
  spar::kernel::start_merge<T, Index>(left.first(a.indices.size()), right.first(b.indices.size()), out.indices.data(),
                                      out.values.data(), op, counted.data(), words.data(), nullptr);
  kernel_test::finish();
  const std::uint64_t count = counted.copy()[0];
  EXPECT_LE(count, n);
  return out.copy(count);
}

template <class T, class Index, class Op>
coo<T, Index> by_host(const coo<T, Index>& a, const coo<T, Index>& b, Op op) {
  const std::size_t n = a.indices.size() + b.indices.size();
  coo<T, Index> out{vector<Index>(n), vector<T>(n)};
  const std::size_t count = spar::kernel::merge<T, Index>({a.indices, a.values}, {b.indices, b.values},
                                                          out.indices.data(), out.values.data(), op);
  out.indices.resize(count), out.values.resize(count);
  return out;
}

/// `count` different indices below n, and values of both signs, some of them zeros.
template <class T, class Index>
coo<T, Index> random_stream(std::size_t count, std::uint64_t n, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  coo<T, Index> x;
  for (std::uint64_t i = 0; i < n && x.indices.size() < count; ++i) {
    if (random() % (n - i) >= count - x.indices.size()) continue;
    x.indices.push_back(static_cast<Index>(i));
    x.values.push_back(static_cast<T>(static_cast<double>(random() % 2001) / 8 - 125));
  }
  return x;
}

template <class T, class Index, class Op = spar::sum>
void compare(std::size_t a, std::size_t b, std::uint64_t n, std::uint64_t seed, Op op = {}) {
  const auto x = random_stream<T, Index>(a, n, seed), y = random_stream<T, Index>(b, n, seed + 1);
  EXPECT_TRUE((by_kernel<T, Index>(x, y, op) == by_host<T, Index>(x, y, op))) << a << " and " << b << " of " << n;
}

TEST(device_merge, of_every_size_around_a_tile_has_the_bits_of_the_host) {
  unsigned number = 0;
  for (const std::size_t a : {0U, 1U, 2U, 255U, 1024U, 1919U, 1920U, 1921U, 3840U, 6000U}) {
    for (const std::size_t b : {0U, 1U, 1025U, 1920U, 3839U, 5001U}) {
      if (spar_test::runs_case(2, number++)) compare<float, std::uint32_t>(a, b, 9000, a * 10'007 + b);
    }
  }
}

TEST(device_merge, folds_equal_indices_on_every_edge) {
  // Both operands have all indices, or nearly all, so that every edge of a tile and of a thread separates a pair in
  // some case.
  for (const std::size_t missing : {0U, 1U, 2U, 3U, 7U, 100U})
    compare<float, std::uint32_t>(5000, 5000 - missing, 5000, missing);
  coo<float, std::uint32_t> even, odd;
  for (std::uint32_t i = 0; i < 5000; ++i) (i % 2 == 0 ? even : odd).indices.push_back(i);
  even.values.assign(2500, 1), odd.values.assign(2500, 2);
  EXPECT_TRUE((by_kernel(even, odd, spar::sum{}) == by_host(even, odd, spar::sum{})));
}

TEST(device_merge, of_one_operand_after_the_other) {
  coo<float, std::uint32_t> low, high;
  for (std::uint32_t i = 0; i < 5000; ++i) low.indices.push_back(i), high.indices.push_back(4999 + i);
  low.values.assign(5000, 1), high.values.assign(5000, 2);
  EXPECT_TRUE((by_kernel(low, high, spar::sum{}) == by_host(low, high, spar::sum{})));
  EXPECT_TRUE((by_kernel(high, low, spar::sum{}) == by_host(high, low, spar::sum{})));
}

TEST(device_merge, keeps_the_order_of_operands_for_every_operation_and_type) {
  compare<float, std::uint32_t>(3000, 3000, 4000, 1, spar::product{});
  compare<float, std::uint32_t>(3000, 3000, 4000, 2, spar::maximum{});
  compare<double, std::uint64_t>(3000, 3000, 4000, 3, spar::minimum{});
  compare<std::int32_t, std::uint32_t>(3000, 3000, 4000, 4);
  compare<std::int64_t, std::uint64_t>(3000, 3000, 4000, 5);
  // -0.0 and NaN: the left operand's bits decide.
  coo<float, std::uint32_t> x{{1, 2, 3}, {-0.0F, std::numeric_limits<float>::quiet_NaN(), 1}};
  coo<float, std::uint32_t> y{{1, 2, 3}, {0.0F, 5, -1}};
  for (int swapped = 0; swapped < 2; ++swapped, std::swap(x, y)) {
    EXPECT_TRUE((by_kernel(x, y, spar::maximum{}) == by_host(x, y, spar::maximum{})));
    EXPECT_TRUE((by_kernel(x, y, spar::sum{}) == by_host(x, y, spar::sum{})));
  }
}

TEST(device_merge, does_not_depend_on_the_order_of_threads_and_blocks) {
  const auto x = random_stream<float, std::uint32_t>(8000, 20'000, 6);
  const auto y = random_stream<float, std::uint32_t>(9000, 20'000, 7);
  const auto expected = by_host(x, y, spar::sum{});
  for (std::uint64_t seed = 1; seed <= (spar_test::runs_all_cases() ? 20 : 3); ++seed) {
    kernel_test::set_order(seed, 1 + static_cast<unsigned>(seed % 9));
    EXPECT_TRUE((by_kernel(x, y, spar::sum{}) == expected)) << seed;
  }
}

/// Merges streams with indices in [begin, end) by the kernels and on the host.
template <class T, class Index, class Op = spar::sum>
void compare_many(const vector<coo<T, Index>>& streams, std::uint64_t begin, std::uint64_t end, Op op = {}) {
  SCOPED_TRACE(testing::Message() << streams.size() << " streams in [" << begin << ", " << end << ")");
  vector<spar::kernel::device_coo<T, Index>> parts;
  vector<spar::coo_span<T, Index>> spans;
  vector<coo<T, Index>> copies = streams; // `coo_span` refers to values that can be changed
  std::deque<unaligned_coo<T, Index>> inputs;
  std::size_t total = 0;
  for (auto& s : copies) {
    parts.push_back(inputs.emplace_back(s).first(s.indices.size()));
    spans.push_back({s.indices, s.values});
    total += s.indices.size();
  }
  spar::pool memory;
  coo<T, Index> expected{vector<Index>(total), vector<T>(total)};
  const std::size_t count = spar::kernel::merge_many<T, Index>(spans, begin, end, expected.indices.data(),
                                                               expected.values.data(), op, memory);
  expected.indices.resize(count), expected.values.resize(count);

  const std::size_t room = std::min<std::size_t>(total, end - begin);
  const auto expect_merged = [&](std::uint64_t most, auto start) {
    unaligned_coo<T, Index> got(room);
    unaligned<std::uint64_t> words(spar::kernel::merge_many_words<T>(parts.size(), most), 0xdeadbeef), counted(2);
    start(got.indices.data(), got.values.data(), counted.data(), words.data());
    kernel_test::finish();
    EXPECT_EQ(counted.copy()[1], 0U);
    const std::uint64_t merged = counted.copy()[0];
    ASSERT_LE(merged, room);
    EXPECT_TRUE(got.copy(merged) == expected);
  };
  expect_merged(end - begin, [&](Index* i, T* v, std::uint64_t* counted, std::uint64_t* words) {
    spar::kernel::start_merge_many<T, Index>(parts.data(), parts.size(), begin, end, i, v, op, counted, counted + 1,
                                             words, nullptr);
  });
  if constexpr (std::is_same_v<T, float>) { // a range that only the device knows, and that may be longer
    const vector<std::uint64_t> range{begin, end};
    for (const std::uint64_t most : {end - begin, end - begin + 20'000}) {
      expect_merged(most, [&](Index* i, T* v, std::uint64_t* counted, std::uint64_t* words) {
        spar::kernel::start_merge_many_in<T, Index>(range.data(), most, parts.data(), parts.size(), i, v, op, counted,
                                                    counted + 1, words, nullptr);
      });
    }
  }
}

template <class T, class Index>
vector<coo<T, Index>> random_streams(std::size_t count, std::size_t entries, std::uint64_t begin, std::uint64_t end,
                                     std::uint64_t seed) {
  vector<coo<T, Index>> all;
  for (std::size_t s = 0; s < count; ++s) {
    all.push_back(random_stream<T, Index>(s % 3 == 2 ? entries / 5 : entries, end - begin, seed + s));
    for (Index& i : all.back().indices) i = static_cast<Index>(i + begin);
  }
  return all;
}

TEST(device_merge_many, has_the_bits_of_the_host) {
  for (const std::size_t count : {0U, 1U, 2U, 3U, 8U, 13U}) {
    for (const std::uint64_t range : {1U, 31U, 8191U, 8192U, 8193U, 30'000U}) {
      const std::size_t entries = range / 3 + 1;
      compare_many(random_streams<float, std::uint32_t>(count, entries, 100, 100 + range, count), 100, 100 + range);
    }
  }
  // More bounds of windows than a block finds.
  compare_many(random_streams<float, std::uint32_t>(130, 100, 0, 8193, 7), 0, 8193);
}

TEST(device_merge_many, of_every_density_type_and_operation) {
  for (const std::size_t entries : {1U, 10U, 5000U, 20'000U})
    compare_many(random_streams<float, std::uint32_t>(5, entries, 0, 20'000, entries), 0, 20'000);
  compare_many(random_streams<double, std::uint64_t>(5, 3000, 1ULL << 40, (1ULL << 40) + 9000, 1), 1ULL << 40,
               (1ULL << 40) + 9000, spar::maximum{});
  compare_many(random_streams<double, std::uint64_t>(4, 3000, ~0ULL - 9000, ~0ULL, 1), ~0ULL - 9000, ~0ULL);
  compare_many(random_streams<std::int32_t, std::uint32_t>(5, 3000, 0, 9000, 2), 0, 9000, spar::product{});
  compare_many(random_streams<float, std::uint32_t>(5, 9000, 0, 9000, 3), 0, 9000, spar::minimum{});
}

/// Whether the kernels find fault with one of two streams, whose indices are `indices`. The other has all indices, so
/// that any index that is taken for one of another place is out of its order.
template <class Index>
bool finds_wrong(const vector<Index>& indices, std::uint64_t begin, std::uint64_t end) {
  const vector<float> values(std::max<std::size_t>(indices.size(), end - begin), 1);
  vector<Index> all(end - begin);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<Index>(begin + i);
  const vector<spar::kernel::device_coo<float, Index>> parts{{indices.data(), values.data(), indices.size()},
                                                             {all.data(), values.data(), all.size()}};
  vector<Index> out_i(end - begin);
  vector<float> out_v(end - begin);
  vector<std::uint64_t> words(spar::kernel::merge_many_words<float>(2, end - begin), 0xdeadbeef), counted(2);
  spar::kernel::start_merge_many<float, Index>(parts.data(), 2, begin, end, out_i.data(), out_v.data(), spar::sum{},
                                               counted.data(), counted.data() + 1, words.data(), nullptr);
  kernel_test::finish();
  EXPECT_LE(counted[0], end - begin);
  return counted[1] != 0;
}

template <class Index>
void find_wrong_indices(std::uint64_t begin) {
  SCOPED_TRACE(testing::Message() << "from " << begin);
  constexpr std::size_t range = 18'000, stride = 3, count = range / stride;
  vector<Index> good(count);
  for (std::size_t e = 0; e < count; ++e) good[e] = static_cast<Index>(begin + stride * e);
  EXPECT_FALSE(finds_wrong(good, begin, begin + range));
  EXPECT_FALSE(finds_wrong(vector<Index>(), begin, begin + range));
  EXPECT_TRUE(finds_wrong(good, begin + 1, begin + range));
  EXPECT_TRUE(finds_wrong(good, begin, std::uint64_t{good.back()}));
  EXPECT_FALSE(finds_wrong(good, begin, std::uint64_t{good.back()} + 1));
  // At the ends, and at both sides of the first window's end; the wrong index is in the same window or in another one.
  for (const std::size_t at : {std::size_t{0}, std::size_t{2730}, std::size_t{2731}, count - 1}) {
    for (const std::int64_t off : {-1'000'000, -9000, -4, -3, 3, 4, 9000, 1'000'000}) {
      auto wrong = good;
      wrong[at] = static_cast<Index>(wrong[at] + static_cast<Index>(off));
      const bool ascends = (at == 0 || wrong[at - 1] < wrong[at]) && (at + 1 == count || wrong[at] < wrong[at + 1]);
      const bool in_range = wrong[at] >= begin && wrong[at] < begin + range;
      EXPECT_EQ(finds_wrong(wrong, begin, begin + range), !ascends || !in_range) << at << " by " << off;
    }
  }
  auto reversed = good;
  std::reverse(reversed.begin(), reversed.end());
  EXPECT_TRUE(finds_wrong(reversed, begin, begin + range));
  std::mt19937_64 random(begin);
  std::shuffle(reversed.begin(), reversed.end(), random);
  EXPECT_TRUE(finds_wrong(reversed, begin, begin + range));
  for (Index& i : reversed) i = static_cast<Index>(random());
  EXPECT_TRUE(finds_wrong(reversed, begin, begin + range));
}

TEST(device_merge_many, finds_indices_that_do_not_ascend_or_leave_the_range) {
  find_wrong_indices<std::uint32_t>(2'000'000);
  find_wrong_indices<std::uint64_t>(std::uint64_t{1} << 40);
}

TEST(device_merge_many, does_not_depend_on_the_order_of_threads_and_blocks) {
  const auto streams = random_streams<float, std::uint32_t>(6, 4000, 0, 40'000, 4);
  for (std::uint64_t seed = 1; seed <= (spar_test::runs_all_cases() ? 8 : 2); ++seed) {
    kernel_test::set_order(seed, 1 + static_cast<unsigned>(seed % 5));
    compare_many(streams, 0, 40'000);
  }
}

} // namespace
