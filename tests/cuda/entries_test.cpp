// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The kernels that add, scatter, search, count and divide values and entries, against the host's functions or plain
// loops.
#include "kernel_test.hpp"
#include "support/extent.hpp"

#include <spar/core/coo_span.hpp>
#include <spar/core/memory/pool.hpp>
#include <spar/core/op.hpp>
#include <spar/cuda/kernel/dense.cuh>
#include <spar/cuda/kernel/largest.cuh>
#include <spar/cuda/kernel/moments.cuh>
#include <spar/cuda/kernel/partition.cuh>
#include <spar/cuda/kernel/search.cuh>
#include <spar/cuda/kernel/take.cuh>
#include <spar/storage/codec.hpp>
#include <spar/storage/keep_largest.hpp>
#include <spar/storage/kernel/dense.hpp>
#include <spar/storage/kernel/magnitude.hpp>
#include <spar/storage/kernel/slice.hpp>
#include <spar/storage/merge.hpp>
#include <spar/storage/sparse_stream.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <type_traits>
#include <utility>

namespace {

using namespace spar::kernel;
using kernel_test::unaligned;
using kernel_test::vector;

template <class T>
bool same_bits(const vector<T>& a, const vector<T>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), kernel_test::same_bits<T>);
}

template <class T, class Index>
struct coo {
  vector<Index> indices;
  vector<T> values;

  void push_back(Index i, T v) { indices.push_back(i), values.push_back(v); }
  friend bool operator==(const coo& a, const coo& b) { return a.indices == b.indices && same_bits(a.values, b.values); }
};

/// `count` entries with ascending indices from `begin`, about one in `gap`. The values have few magnitudes and both
/// signs; floats are also infinities, NaN, denormals and zeros of both signs.
template <class T, class Index>
coo<T, Index> random_entries(std::size_t count, std::uint64_t begin, std::uint64_t gap, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  coo<T, Index> x;
  for (std::uint64_t i = begin; x.indices.size() < count; ++i) {
    i += random() % gap;
    T value = static_cast<T>(static_cast<std::int64_t>(random() % 13) - 6); // modulo the range of an unsigned type
    if constexpr (!std::is_integral_v<T>) {
      using limits = std::numeric_limits<T>;
      const T special[] = {limits::infinity(), limits::quiet_NaN(), limits::denorm_min(), T(0)};
      if (random() % 8 == 0) value = special[random() % 4];
      if (random() % 2 == 0) value = -value;
    }
    x.push_back(static_cast<Index>(i), value);
  }
  return x;
}

template <class T, class Index, class Op>
void compare_scatter(std::size_t count, std::uint64_t begin, Op op) {
  SCOPED_TRACE(testing::Message() << count << " entries from " << begin);
  auto entries = random_entries<T, Index>(count, begin, 3, count);
  const std::size_t range = 3 * count + 1;
  vector<T> expected(range, T(5));
  const spar::coo_span<T, Index> span{entries.indices, entries.values};
  spar::kernel::scatter(span, begin, expected.data(), op);
  unaligned<Index> indices(entries.indices);
  unaligned<T> values(entries.values), dense(range, T(77));
  start_fill(dense.data(), range, T(5), nullptr);
  start_scatter(indices.data(), values.data(), count, begin, dense.data(), op, nullptr);
  kernel_test::finish();
  EXPECT_TRUE(same_bits(dense.copy(), expected));
  std::reverse(entries.values.begin(), entries.values.end());
  spar::kernel::scatter_assign(span, begin, expected.data());
  std::copy(entries.values.begin(), entries.values.end(), values.data());
  start_scatter_assign(indices.data(), values.data(), count, begin, dense.data(), nullptr);
  kernel_test::finish();
  EXPECT_TRUE(same_bits(dense.copy(), expected));
}

/// Pieces of these lengths, with the values 77 after the end.
template <class T, class Index>
void compare_pieces(const std::vector<std::size_t>& lengths) {
  vector<coo<T, Index>> pieces;
  coo<T, Index> expected;
  entry_pieces<T, Index> from;
  for (const std::size_t length : lengths) pieces.push_back(random_entries<T, Index>(length, 5, 3, length));
  for (const auto& piece : pieces) {
    for (std::size_t e = 0; e < piece.indices.size(); ++e) expected.push_back(piece.indices[e], piece.values[e]);
    from.add(piece.indices.data(), piece.values.data(), piece.indices.size());
  }
  const std::size_t count = expected.indices.size();
  EXPECT_EQ(from.count(), count);
  unaligned<Index> indices(count + 1, 77);
  unaligned<T> values(count + 1, T(77));
  start_copy_entries(from, indices.data(), values.data(), nullptr);
  kernel_test::finish();
  expected.push_back(77, T(77));
  EXPECT_TRUE((coo<T, Index>{indices.copy(), values.copy()} == expected));
}

TEST(device_copy_entries, puts_pieces_one_after_the_other) {
  compare_pieces<float, std::uint32_t>({});
  compare_pieces<float, std::uint32_t>({0, 0, 0, 0});
  compare_pieces<float, std::uint32_t>({5000});
  compare_pieces<float, std::uint32_t>({0, 2047, 1, 2049});
  compare_pieces<float, std::uint32_t>({2048, 0, 0, 2048});
  compare_pieces<double, std::uint64_t>({1, 2, 3, 4});
  compare_pieces<std::int32_t, std::uint64_t>({300, 1});
}

/// The entries over the values 5, and 77 beyond the end.
template <class T, class Index>
void compare_write(std::size_t count, std::uint64_t begin, std::uint64_t gap, std::size_t n) {
  SCOPED_TRACE(testing::Message() << count << " entries of " << n << " values from " << begin);
  auto entries = random_entries<T, Index>(count, begin, gap, count);
  if (count > 0) {
    ASSERT_LT(entries.indices.back() - begin, n);
  }
  vector<T> expected(n, T(5));
  spar::kernel::scatter_assign(spar::coo_span<T, Index>{entries.indices, entries.values}, begin, expected.data());
  expected.push_back(T(77));
  unaligned<Index> indices(entries.indices);
  unaligned<T> values(entries.values), dense(n + 1, T(77));
  start_write_entries(indices.data(), values.data(), count, begin, dense.data(), n, T(5), nullptr);
  kernel_test::finish();
  EXPECT_TRUE(same_bits(dense.copy(), expected));
}

TEST(device_write, of_every_size_and_type_has_the_bits_of_the_host) {
  compare_write<float, std::uint32_t>(0, 0, 1, 0);
  for (const std::size_t n : {1U, 255U, 8191U, 8192U, 8193U, 40'000U}) {
    compare_write<float, std::uint32_t>(0, 7, 1, n);
    compare_write<float, std::uint32_t>(n, 7, 1, n);
    compare_write<float, std::uint32_t>(n / 40, 7, 20, n); // the last tiles have no entry
  }
  compare_write<double, std::uint64_t>(900, std::uint64_t{5} << 32, 20, 20'000);
  compare_write<float, std::uint32_t>(17'000, ~0U - 17'000, 1, 17'001);
  compare_write<std::int64_t, std::uint32_t>(33, 0, 3, 100);
}

/// Lists some of the indices of the entries, and others.
template <class T, class Index>
void compare_unlisted(std::size_t count, std::uint64_t gap, std::size_t listed_count, std::uint64_t listed_gap) {
  SCOPED_TRACE(testing::Message() << count << " entries, " << listed_count << " listed");
  const auto entries = random_entries<T, Index>(count, 3, gap, count);
  const auto list = random_entries<T, Index>(listed_count, 0, listed_gap, count + 1).indices;
  vector<T> expected(count * gap + 4, T(5));
  for (std::size_t e = 0; e < count; ++e) {
    if (!std::binary_search(list.begin(), list.end(), entries.indices[e]))
      expected[static_cast<std::size_t>(entries.indices[e])] = entries.values[e];
  }
  unaligned<Index> indices(entries.indices), listed(list);
  unaligned<T> values(entries.values), dense(expected.size(), T(5));
  start_assign_unlisted(indices.data(), values.data(), count, listed.data(), list.size(), dense.data(), nullptr);
  kernel_test::finish();
  EXPECT_TRUE(same_bits(dense.copy(), expected));
}

TEST(device_assign_unlisted, of_every_size_and_type_has_the_bits_of_a_loop) {
  for (const std::size_t count : {0U, 1U, 31U, 1023U, 1024U, 1025U, 2049U, 5000U}) {
    for (const std::size_t listed : {0U, 1U, 100U, 6000U}) compare_unlisted<float, std::uint32_t>(count, 3, listed, 3);
    compare_unlisted<float, std::uint32_t>(count, 60, 20'000, 3); // many are listed between two entries
    compare_unlisted<float, std::uint32_t>(count, 1, count, 1);   // the same indices, three entries later
  }
  compare_unlisted<double, std::uint64_t>(900, 4, 700, 4);
  compare_unlisted<std::int32_t, std::uint64_t>(900, 4, 700, 4);
  compare_unlisted<std::int64_t, std::uint32_t>(900, 4, 700, 4);
}

TEST(device_assign_unlisted, finds_indices_in_a_part_of_the_list_that_just_fits_into_a_block) {
  constexpr std::size_t count = 1024, gap = 60;
  const std::size_t first = random_entries<float, std::uint32_t>(count, 3, gap, count).indices.front();
  const std::size_t room = spar::kernel::detail::unlisted_tile<std::uint32_t>::room;
  for (const std::size_t length : {room - 1, room, room + 1}) // the list has all indices up to a last one
    compare_unlisted<float, std::uint32_t>(count, gap, first + length, 1);
}

TEST(device_scatter, of_every_size_type_and_operation_has_the_bits_of_the_host) {
  for (const std::size_t count : {0U, 1U, 31U, 2047U, 2048U, 2049U, 5000U})
    compare_scatter<float, std::uint32_t>(count, 7, spar::sum{});
  compare_scatter<float, std::uint32_t>(900, 0, spar::maximum{});
  compare_scatter<float, std::uint32_t>(900, ~0U - 2701, spar::minimum{});
  compare_scatter<double, std::uint64_t>(900, std::uint64_t{5} << 32, spar::product{});
  compare_scatter<std::int32_t, std::uint64_t>(900, 1, spar::product{});
  compare_scatter<std::int64_t, std::uint32_t>(900, 1, spar::sum{});
}

/// A result that is not written keeps the value 77.
template <class T>
void compare_add(std::size_t n) {
  SCOPED_TRACE(testing::Message() << n << " values");
  const vector<T> a = random_entries<T, std::uint32_t>(n, 0, 1, n).values;
  vector<T> b = random_entries<T, std::uint32_t>(n, 0, 1, n + 1).values;
  for (T& v : b) v = v != v ? T(1) : v; // which of two NaN is the sum of both depends on the compiler
  vector<T> expected(n);
  for (std::size_t i = 0; i < n; ++i) expected[i] = static_cast<T>(a[i] + b[i]);
  unaligned<T> left(a), right(b), out(n, T(77));
  start_add(left.data(), right.data(), n, out.data(), nullptr);
  start_add<T>(left.data(), right.data(), n, left.data(), nullptr);
  kernel_test::finish();
  EXPECT_TRUE(same_bits(out.copy(), expected));
  EXPECT_TRUE(same_bits(left.copy(), expected)) << "in place";
  start_add<T>(nullptr, right.data(), n, out.data(), nullptr);
  kernel_test::finish();
  EXPECT_TRUE(same_bits(out.copy(), b)) << "without a residual";
}

TEST(device_add, of_every_size_and_type_has_the_bits_of_a_loop) {
  for (const std::size_t n : {0U, 1U, 31U, 255U, 257U, 2047U, 2048U, 2049U, 5000U}) compare_add<float>(n);
  compare_add<double>(2049);
  compare_add<std::int32_t>(2049);
  compare_add<std::int64_t>(2049);
}

struct is_nan {
  __device__ bool operator()(float value) const { return value != value; }
};

TEST(device_find_any, finds_one_value_in_every_place) {
  for (const std::size_t n : {0U, 1U, 31U, 257U, 2048U, 2049U, 5000U}) {
    SCOPED_TRACE(n);
    unaligned<float> x(n, 1);
    unaligned<std::uint32_t> found(1);
    const auto find = [&] {
      start_find_any(x.data(), n, found.data(), is_nan{}, nullptr);
      kernel_test::finish();
      return found.copy()[0];
    };
    EXPECT_EQ(find(), 0U);
    for (const std::size_t at : {std::size_t{0}, n / 2, n - 1}) {
      if (n == 0) break;
      *found.data() = 0;
      x.data()[at] = std::numeric_limits<float>::quiet_NaN();
      EXPECT_EQ(find(), 1U) << "at " << at;
      x.data()[at] = 1;
      EXPECT_EQ(find(), 1U) << "a search must not change what an earlier one has found";
    }
  }
}

template <class T, class Index>
void compare_scatter_difference(std::size_t count) {
  SCOPED_TRACE(testing::Message() << count << " entries");
  const auto sent = random_entries<T, Index>(count, 0, 3, count);
  vector<T> decoded(count), before(3 * count + 1), expected;
  for (std::size_t e = 0; e < count; ++e) decoded[e] = sent.values[e] * T(0.7); // rounded
  for (std::size_t i = 0; i < before.size(); ++i) before[i] = T(1e-3) * static_cast<T>(i + 1);
  unaligned<Index> indices(sent.indices);
  unaligned<T> exact(sent.values), received(decoded), dense(before);
  start_scatter_difference(indices.data(), exact.data(), received.data(), count, dense.data(), nullptr);
  kernel_test::finish();
  expected = before;
  spar::kernel::scatter_difference(expected.data(), sent.indices.data(), sent.values.data(), decoded.data(), count);
  EXPECT_TRUE(same_bits(dense.copy(), expected));
  start_scatter_difference(static_cast<const Index*>(nullptr), exact.data(), received.data(), count, dense.data(),
                           nullptr);
  kernel_test::finish();
  spar::kernel::add_difference(expected.data(), sent.values.data(), decoded.data(), count);
  EXPECT_TRUE(same_bits(dense.copy(), expected)) << "of a block";
}

template <class T, class Index>
void compare_gather(std::size_t count) {
  const auto listed = random_entries<T, Index>(count, 0, 3, count),
             dense = random_entries<T, Index>(3 * count + 1, 0, 1, 7);
  unaligned<Index> indices(listed.indices);
  unaligned<T> x(dense.values), out(count);
  start_gather(x.data(), indices.data(), count, out.data(), nullptr);
  kernel_test::finish();
  vector<T> expected(count), on_the_host(count);
  for (std::size_t e = 0; e < count; ++e) expected[e] = dense.values[listed.indices[e]];
  EXPECT_TRUE(same_bits(out.copy(), expected)) << count << " indices";
  spar::kernel::gather(dense.values.data(), listed.indices.data(), count, on_the_host.data());
  EXPECT_TRUE(same_bits(on_the_host, expected)) << count << " indices, on the host";
}

TEST(device_gather, of_every_size_has_the_values_at_the_indices) {
  for (const std::size_t count : {0U, 1U, 31U, 257U, 2047U, 2048U, 2049U, 5000U})
    compare_gather<float, std::uint32_t>(count);
  compare_gather<double, std::uint64_t>(2049);
}

/// The entries have infinities and NaN, which must not reach the residual.
TEST(device_scatter_difference, of_every_size_has_the_bits_of_the_host) {
  for (const std::size_t count : {0U, 1U, 31U, 257U, 2047U, 2048U, 2049U, 5000U})
    compare_scatter_difference<float, std::uint32_t>(count);
  compare_scatter_difference<float, std::uint64_t>(2049);
  compare_scatter_difference<double, std::uint32_t>(2049);
}

/// Bounds around indices, at the ends of the types, and at random, in any order.
template <class Index>
vector<std::uint64_t> some_bounds(const vector<Index>& indices, std::size_t count, std::mt19937_64& random) {
  constexpr std::uint64_t edges[] = {0, 1, ~0U, std::uint64_t{1} << 32, (std::uint64_t{1} << 32) + 1, ~0ULL};
  vector<std::uint64_t> bounds(count);
  for (std::uint64_t& b : bounds) {
    if (indices.empty() || random() % 4 == 0)
      b = edges[random() % 6];
    else
      b = indices[random() % indices.size()] + random() % 3 - (random() % 2);
  }
  return bounds;
}

template <class Index>
void compare_bounds(std::uint64_t begin) {
  std::mt19937_64 random(begin);
  for (const std::size_t count : {0U, 1U, 2U, 31U, 1000U}) {
    const auto indices = random_entries<float, Index>(count, begin, 5, count).indices;
    for (const std::size_t bound_count : {0U, 1U, 127U, 128U, 129U, 300U}) {
      SCOPED_TRACE(testing::Message() << bound_count << " bounds in " << count << " indices from " << begin);
      const auto bounds = some_bounds(indices, bound_count, random);
      vector<std::uint64_t> expected;
      for (const std::uint64_t b : bounds) expected.push_back(lower_bound(std::span<const Index>(indices), b));
      unaligned<Index> in(indices);
      unaligned<std::uint64_t> to(bounds), positions(bound_count, 99);
      start_find_bounds(in.data(), count, to.data(), bound_count, positions.data(), nullptr);
      kernel_test::finish();
      EXPECT_EQ(positions.copy(), expected);
    }
  }
}

TEST(device_bounds, are_those_of_the_host) {
  compare_bounds<std::uint32_t>(0);
  compare_bounds<std::uint32_t>(~0U - 5000);
  compare_bounds<std::uint64_t>((std::uint64_t{1} << 32) - 1000);
  compare_bounds<std::uint64_t>(~std::uint64_t{0} - 5003);
}

/// Whether the kernel finds fault with the indices, and leaves `bad` alone if it does not.
template <class Index>
bool is_bad(const vector<Index>& indices, std::uint64_t begin, std::uint64_t end) {
  unaligned<Index> in(indices);
  vector<std::uint32_t> bad(1, 7);
  start_check_indices(in.data(), indices.size(), begin, end, bad.data(), nullptr);
  kernel_test::finish();
  EXPECT_TRUE(bad[0] == 7 || bad[0] == 1);
  return bad[0] == 1;
}

template <class Index>
void check_indices_from(std::uint64_t begin) {
  for (const std::size_t count : {1U, 2U, 33U, 2048U, 2049U, 4100U}) {
    SCOPED_TRACE(testing::Message() << count << " indices from " << begin);
    const auto good = random_entries<float, Index>(count, begin, 2, count).indices;
    EXPECT_FALSE(is_bad(good, good.front(), std::uint64_t{good.back()} + 1));
    EXPECT_FALSE(is_bad(good, 0, ~std::uint64_t{0}));
    EXPECT_TRUE(is_bad(good, std::uint64_t{good.front()} + 1, ~std::uint64_t{0}));
    EXPECT_TRUE(is_bad(good, 0, good.back()));
    for (const std::size_t at : {std::size_t{1}, std::size_t{31}, std::size_t{32}, std::size_t{2048}, count - 1}) {
      if (at == 0 || at >= count) continue;
      auto equal = good, lower = good;
      equal[at] = equal[at - 1];
      lower[at - 1] = static_cast<Index>(lower[at] + 1);
      for (const auto& indices : {equal, lower}) {
        ASSERT_LT(first_bad_index(std::span<const Index>(indices), ~std::uint64_t{0}), count);
        EXPECT_TRUE(is_bad(indices, 0, ~std::uint64_t{0})) << at;
      }
    }
  }
}

TEST(device_indices, that_do_not_ascend_or_leave_the_range_are_found) {
  EXPECT_FALSE(is_bad(vector<std::uint32_t>(), 0, 0));
  check_indices_from<std::uint32_t>(3);
  check_indices_from<std::uint64_t>((std::uint64_t{1} << 32) - 50);
}

template <class T>
void compare_reached(const vector<T>& values, const magnitude_probes<T>& probes) {
  SCOPED_TRACE(testing::Message() << probes.count << " probes of " << values.size());
  vector<std::uint64_t> expected(32);
  for (const T v : values) {
    const auto reaches = [&](magnitude<T> probe) { return magnitude_of(v) >= probe; };
    ++expected[static_cast<std::size_t>(std::count_if(probes.probe, probes.probe + probes.count, reaches))];
  }
  unaligned<T> in(values);
  unaligned<std::uint64_t> words(count_words, 0);
  for (int call = 0; call < 2; ++call) { // the second one with the words of the first one
    unaligned<std::uint64_t> reached(32, 99);
    start_count_reached(in.data(), values.size(), probes, reached.data(), words.data(), nullptr);
    kernel_test::finish();
    EXPECT_EQ(reached.copy(), expected);
  }
}

/// Ascending probes at magnitudes of values or at random, some of them equal, also the lowest and the greatest one.
template <class T>
magnitude_probes<T> some_probes(const vector<T>& values, unsigned count, std::mt19937_64& random) {
  magnitude_probes<T> probes{{}, count};
  std::fill(std::begin(probes.probe), std::end(probes.probe), magnitude<T>{1}); // not in order after the last one
  for (unsigned p = 0; p < count; ++p) {
    const unsigned kind = static_cast<unsigned>(random() % 8);
    if (kind == 0)
      probes.probe[p] = random() % 2 == 0 ? 0 : greatest_magnitude<T>;
    else if (kind < 5 && !values.empty())
      probes.probe[p] = static_cast<magnitude<T>>(magnitude_of(values[random() % values.size()]) + random() % 2);
    else
      probes.probe[p] = static_cast<magnitude<T>>(random());
  }
  std::sort(probes.probe, probes.probe + count);
  return probes;
}

template <class T>
void compare_all_reached() {
  std::mt19937_64 random(sizeof(T));
  for (const std::size_t n : {0U, 1U, 33U, 2047U, 2049U, 9000U}) {
    const auto values = random_entries<T, std::uint64_t>(n, 0, 1, n).values;
    for (const unsigned count : {0U, 1U, 2U, 15U, 16U, 30U, 31U}) {
      if (n < 9000 || count % 15 == 1) compare_reached(values, some_probes(values, count, random));
    }
  }
}

TEST(device_reached, counts_of_every_type_are_those_of_a_loop) {
  compare_all_reached<float>();
  compare_all_reached<double>();
  compare_all_reached<std::int32_t>();
  compare_all_reached<std::uint32_t>();
  compare_all_reached<std::int64_t>();
}

TEST(device_reached, does_not_depend_on_the_order_of_threads_and_blocks) {
  std::mt19937_64 random(3);
  const auto values = random_entries<float, std::uint32_t>(5000, 0, 1, 3).values;
  for (std::uint64_t seed = 1; seed <= (spar_test::runs_all_cases() ? 8 : 2); ++seed) {
    kernel_test::set_order(seed, 1 + static_cast<unsigned>(seed % 4));
    compare_reached(values, some_probes(values, 31, random));
  }
}

TEST(device_reached, the_last_block_reads_the_counts_of_all_blocks) {
  const unsigned blocks = 3; // which end at about the same time, each with counts in all bins
  vector<float> values(blocks * detail::probe_grid::values);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % detail::probe_grid::bins);
  magnitude_probes<float> probes{{}, detail::probe_grid::probes};
  for (unsigned p = 0; p < probes.count; ++p) probes.probe[p] = magnitude_of(static_cast<float>(p + 1));
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    kernel_test::set_order(seed, blocks);
    compare_reached(values, probes);
  }
}

/// Entries that stay, and all others.
template <class T, class Index>
struct divided {
  coo<T, Index> kept, other;
  bool operator==(const divided&) const = default;
};

/// Divides entries by the kernel, with outputs that have room for exactly the numbers of entries of `expected`. Without
/// `indexed`, the kernel gets no indices. With `drop`, it gets no outputs for the others.
template <class T, class Index, class Keep>
divided<T, Index> by_kernel(const coo<T, Index>& x, Keep keep, const divided<T, Index>& expected, bool indexed,
                            bool drop) {
  const std::size_t n = x.indices.size(), kept = expected.kept.indices.size(), others = drop ? 0 : n - kept;
  unaligned<Index> in_i(x.indices), kept_i(kept), other_i(others);
  unaligned<T> in_v(x.values), kept_v(kept), other_v(others);
  unaligned<std::uint64_t> words(partition_words(n), 0xdeadbeef), count(1, ~0ULL);
  const std::uint64_t begin = n == 0 || indexed ? 99 : x.indices[0]; // not used for a stream with indices
  start_partition(device_coo<T, Index>{indexed ? in_i.data() : nullptr, in_v.data(), n}, begin, keep, kept_i.data(),
                  kept_v.data(), drop ? nullptr : other_i.data(), drop ? nullptr : other_v.data(), count.data(),
                  words.data(), nullptr);
  kernel_test::finish();
  EXPECT_EQ(count.copy()[0], kept);
  return {{kept_i.copy(), kept_v.copy()}, {other_i.copy(), other_v.copy()}};
}

/// The same by a loop: `stays(value)` is called for each entry, in order.
template <class T, class Index, class Stays>
divided<T, Index> by_loop(const coo<T, Index>& x, Stays stays) {
  divided<T, Index> out;
  for (std::size_t e = 0; e < x.indices.size(); ++e)
    (stays(x.values[e]) ? out.kept : out.other).push_back(x.indices[e], x.values[e]);
  return out;
}

template <class T, class Index, class Keep>
void compare(const coo<T, Index>& x, Keep keep, const divided<T, Index>& expected) {
  SCOPED_TRACE(testing::Message() << expected.kept.indices.size() << " of " << x.indices.size());
  EXPECT_TRUE((by_kernel(x, keep, expected, true, false) == expected));
  const divided<T, Index> dropped{expected.kept, {}};
  EXPECT_TRUE((by_kernel(x, keep, expected, true, true) == dropped));
  const std::size_t n = x.indices.size();
  const bool dense = n == 0 || x.indices[n - 1] - x.indices[0] == n - 1;
  if (dense) {
    EXPECT_TRUE((by_kernel(x, keep, expected, false, false) == expected));
  }
}

/// The entries that a cut keeps. Sets `equal` to the number of entries at the threshold.
template <class T, class Index>
divided<T, Index> cut_by_loop(const coo<T, Index>& x, magnitude<T> threshold, std::size_t ties, std::size_t& equal) {
  equal = 0;
  return by_loop(x, [&](T v) {
    const magnitude<T> m = magnitude_of(v);
    return m > threshold || (m == threshold && equal++ < ties);
  });
}

/// Divides by a cut in device memory, and by a cut that does not say how many entries are at the threshold.
template <class T, class Index>
void compare_cut(const coo<T, Index>& x, magnitude<T> threshold, std::size_t ties) {
  SCOPED_TRACE(testing::Message() << "threshold " << threshold << " with " << ties << " ties");
  std::size_t equal = 0;
  const auto expected = cut_by_loop(x, threshold, ties, equal);
  compare(x, by_cut<T>{{threshold, 0, ties, ~std::size_t{0}}}, expected);
  const vector<cut<T>> where(1, {threshold, expected.kept.indices.size(), std::min(ties, equal), equal});
  EXPECT_TRUE((by_kernel(x, by_cut_at<T>{where.data()}, expected, true, false) == expected));
}

TEST(device_partition, by_a_cut_keeps_the_first_ties) {
  unsigned number = 0;
  for (const std::size_t n : {0U, 1U, 33U, 4095U, 4096U, 4097U, 12'300U}) {
    const auto x = random_entries<float, std::uint32_t>(n, 3, 1 + n % 3, n);
    for (const std::size_t ties : {0U, 1U, 200U, 900U}) {
      if (spar_test::runs_case(3, number++)) compare_cut(x, magnitude_of(2.0F), ties);
    }
    ++number; // other numbers of ties for the next size
  }
  const auto x = random_entries<float, std::uint32_t>(6000, 3, 2, 6);
  for (const magnitude<float> threshold : {0U, 1U, magnitude_of(std::numeric_limits<float>::infinity()),
                                           magnitude_of(std::numeric_limits<float>::quiet_NaN()), ~0U}) {
    for (const std::size_t ties : {0U, 50U, 100'000U}) {
      if (spar_test::runs_case(4, number++)) compare_cut(x, threshold, ties);
    }
  }
}

TEST(device_partition, by_a_cut_of_every_type) {
  compare_cut(random_entries<double, std::uint32_t>(5000, 0, 1, 1), magnitude_of(3.0), 300);
  compare_cut(random_entries<double, std::uint64_t>(5000, (std::uint64_t{1} << 32) - 2500, 1, 2), magnitude_of(3.0),
              300);
  compare_cut(random_entries<std::int32_t, std::uint64_t>(5000, ~std::uint64_t{0} - 5000, 1, 3), 3U, 300);
  compare_cut(random_entries<std::int64_t, std::uint32_t>(5000, 0, 3, 4), 3U, 300);
  compare_cut(random_entries<std::uint32_t, std::uint32_t>(5000, 0, 3, 5), 3U, 300);
}

coo<float, std::uint32_t> entries_of(const spar::sparse_stream<float, std::uint32_t>& s) {
  coo<float, std::uint32_t> x;
  for (std::size_t e = 0; e < s.count(); ++e) x.push_back(s.indices()[e], s.values()[e]);
  return x;
}

TEST(device_partition, by_the_cut_of_the_k_largest_is_that_of_the_host) {
  const auto x = random_entries<float, std::uint32_t>(9000, 10, 3, 7);
  unsigned number = 0;
  for (const std::uint64_t k : {0U, 1U, 700U, 4000U, 9000U}) {
    SCOPED_TRACE(k);
    spar::pool memory;
    auto kept = spar::sparse_stream<float, std::uint32_t>::sparse(memory, 100'000, x.indices.size());
    std::copy(x.indices.begin(), x.indices.end(), kept.indices().begin());
    std::copy(x.values.begin(), x.values.end(), kept.values().begin());
    const auto other = spar::keep_largest(kept, k, memory);
    const divided<float, std::uint32_t> expected{entries_of(kept), entries_of(other)};
    vector<cut<float>> where(1);
    vector<std::uint64_t> work(largest_bytes<float>(x.values.size(), k) / sizeof(std::uint64_t) + 1);
    start_largest(x.values.data(), x.values.size(), k, where.data(), work.data(), nullptr);
    if (spar_test::runs_case(2, number)) compare(x, by_cut_at<float>{where.data()}, expected);
    kernel_test::finish();
    if (spar_test::runs_case(2, number + 1)) compare(x, by_cut<float>{where[0]}, expected);
    ++number;
  }
}

TEST(device_partition, by_the_empty_cut_keeps_nothing) {
  coo<float, std::uint32_t> x;
  for (std::uint32_t i = 0; i < 40; ++i) x.push_back(i, std::bit_cast<float>(0x7fffffffU)); // the greatest magnitude
  compare(x, by_cut<float>{}, {{}, x});
}

/// Copies with indices, which may have gaps, and without.
template <class T, class Index>
void compare_differing(const coo<T, Index>& x, T neutral, const coo<T, Index>& expected) {
  const std::size_t n = x.indices.size(), kept = expected.indices.size();
  for (const bool indexed : {true, false}) {
    unaligned<Index> in_i(x.indices), out_i(kept);
    unaligned<T> in_v(x.values), out_v(kept);
    unaligned<std::uint64_t> words(differing_words(n), 0xdeadbeef), count(1, ~0ULL);
    start_copy_differing(device_coo<T, Index>{indexed ? in_i.data() : nullptr, in_v.data(), n},
                         n == 0 || indexed ? 99 : x.indices[0], neutral, out_i.data(), out_v.data(), count.data(),
                         words.data(), nullptr);
    kernel_test::finish();
    EXPECT_EQ(count.copy()[0], kept);
    EXPECT_TRUE((coo<T, Index>{out_i.copy(), out_v.copy()} == expected));
  }
}

TEST(device_differing, keeps_nan) {
  for (const std::size_t n : {0U, 1U, 33U, 4095U, 4096U, 4097U, 9000U}) {
    SCOPED_TRACE(n);
    const auto x = random_entries<float, std::uint32_t>(n, 0, 1, n);
    spar::pool memory;
    auto dense = spar::sparse_stream<float, std::uint32_t>::dense(memory, n, 0, n);
    std::copy(x.values.begin(), x.values.end(), dense.values().begin());
    const auto sparse = spar::to_sparse(std::as_const(dense).view(), spar::sum{}, memory);
    const auto expected = by_loop(x, [](float v) { return v != 0; });
    ASSERT_TRUE(std::ranges::equal(sparse.indices(), expected.kept.indices));
    compare_differing(x, n % 2 == 0 ? 0.0F : -0.0F, expected.kept);
  }
  const auto x = random_entries<double, std::uint64_t>(5000, std::uint64_t{1} << 40, 1, 1);
  for (const double neutral : {spar::minimum::neutral<double>(), spar::maximum::neutral<double>(), 1.0})
    compare_differing(x, neutral, by_loop(x, [&](double v) { return v != neutral; }).kept);
  const auto y = random_entries<std::int64_t, std::uint32_t>(5000, 0, 1, 1);
  compare_differing(y, std::int64_t{-1}, by_loop(y, [](std::int64_t v) { return v != -1; }).kept);
}

TEST(device_partition, does_not_depend_on_the_order_of_threads_and_blocks) {
  const auto x = random_entries<float, std::uint32_t>(20'000, 0, 2, 8);
  std::size_t equal = 0;
  const auto expected = cut_by_loop(x, magnitude_of(2.0F), 1500, equal);
  for (std::uint64_t seed = 1; seed <= (spar_test::runs_all_cases() ? 12 : 2); ++seed) {
    kernel_test::set_order(seed, 1 + static_cast<unsigned>(seed % 8));
    EXPECT_TRUE((by_kernel(x, by_cut<float>{{magnitude_of(2.0F), 0, 1500, equal}}, expected, true, false) == expected));
  }
}

TEST(device_partition, counts_the_entries_of_many_tiles) {
  const auto x = random_entries<float, std::uint32_t>(40 * 4096 + 5, 0, 1, 9);
  kernel_test::set_order(1, 36); // one tile waits for all 35 before it
  std::size_t equal = 0;
  const auto expected = cut_by_loop(x, magnitude_of(2.0F), 15'000, equal);
  EXPECT_TRUE(
      (by_kernel(x, by_cut<float>{{magnitude_of(2.0F), 0, 15'000, equal}}, expected, false, false) == expected));
}

template <class T>
void compare_moments(std::size_t n, T special) {
  std::mt19937_64 random(n);
  std::normal_distribution<double> normal(1, 100);
  vector<T> x(n);
  for (T& v : x) v = static_cast<T>(normal(random));
  if (n > 3) x[n / 2] = special, x[n - 1] = special;
  const auto expected = spar::kernel::moments_of(std::span<const T>(x));
  unaligned<T> in(x);
  unaligned<spar::kernel::moments> memory(spar::kernel::moments_room(n));
  const auto* const at = spar::kernel::start_moments(static_cast<const T*>(in.data()), n, memory.data(), nullptr);
  kernel_test::finish();
  EXPECT_EQ(at->count, expected.count) << n;
  EXPECT_EQ(at->sum, expected.sum) << n;
  EXPECT_EQ(at->squares, expected.squares) << n;
}

TEST(device_moments, of_every_size_around_a_block_have_the_bits_of_the_host) {
  for (const std::size_t n : {1U, 7U, 9U, 1023U, 1024U, 1025U, 16'383U, 16'384U, 16'385U})
    compare_moments<float>(n, std::numeric_limits<float>::quiet_NaN());
  compare_moments<float>((1U << 20) + 3000, -std::numeric_limits<float>::infinity()); // three levels
}

TEST(device_moments, of_every_type_have_the_bits_of_the_host) {
  compare_moments<double>(3000, std::numeric_limits<double>::infinity());
  compare_moments<std::int32_t>(3000, std::numeric_limits<std::int32_t>::min());
  compare_moments<std::int64_t>(3000, std::numeric_limits<std::int64_t>::max());
}

} // namespace
