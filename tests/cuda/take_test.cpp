// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The kernel that takes large values, on the host, against the host's own version.
#include "kernel_test.hpp"
#include "support/extent.hpp"

#include <spar/core/element.hpp>
#include <spar/core/error.hpp>
#include <spar/core/memory/pool.hpp>
#include <spar/cuda/kernel/buckets.cuh>
#include <spar/cuda/kernel/largest.cuh>
#include <spar/cuda/kernel/take.cuh>
#include <spar/storage/kernel/buckets.hpp>
#include <spar/storage/kernel/largest.hpp>

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

namespace {

using kernel_test::unaligned;
using kernel_test::vector;

template <class T>
struct entries {
  vector<std::uint32_t> indices;
  vector<T> values;
  vector<T> left; // in x
  std::uint64_t count = 0;
};

template <class T>
vector<spar::kernel::magnitude<T>> bits(const vector<T>& values) {
  vector<spar::kernel::magnitude<T>> all;
  for (const T v : values) all.push_back(std::bit_cast<spar::kernel::magnitude<T>>(v));
  return all;
}

/// Runs the kernel with outputs that have room for exactly `room` entries, so that the sanitizer finds any further one.
/// If not `in_place`, what is left is in another vector, and `x` does not change.
template <class T>
entries<T> by_kernel(const vector<T>& added, const vector<T>& x, spar::kernel::magnitude<T> threshold,
                     std::uint64_t room, std::uint64_t begin = 0, bool in_place = true) {
  unaligned<T> addends(added), from(x), other(in_place ? 0 : x.size(), T(55)), values(room, T(77));
  unaligned<std::uint32_t> indices(room, 0xdeadbeef);
  unaligned<std::uint64_t> words(spar::kernel::take_words(x.size())), count(1, ~0ULL);
  spar::kernel::start_take_at_least<T, std::uint32_t>(
      added.empty() ? nullptr : addends.data(), from.data(), in_place ? from.data() : other.data(), x.size(), threshold,
      begin, indices.data(), values.data(), room, count.data(), words.data(), nullptr);
  kernel_test::finish();
  if (!in_place) {
    EXPECT_EQ(bits(from.copy()), bits(x));
  }
  return {indices.copy(), values.copy(), in_place ? from.copy() : other.copy(), count.copy()[0]};
}

/// The same by a loop over the values.
template <class T>
entries<T> by_loop(const vector<T>& added, vector<T> x, spar::kernel::magnitude<T> threshold, std::uint64_t room,
                   std::uint64_t begin = 0) {
  entries<T> out{vector<std::uint32_t>(room, 0xdeadbeef), vector<T>(room, T(77)), {}, 0};
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!added.empty()) x[i] = static_cast<T>(x[i] + added[i]);
    const auto m = spar::kernel::magnitude_of(x[i]);
    if (m == 0 || m < threshold) continue;
    if (out.count < room) {
      out.indices[out.count] = static_cast<std::uint32_t>(begin + i);
      out.values[out.count] = x[i];
      x[i] = T{};
    }
    ++out.count;
  }
  out.left = std::move(x);
  return out;
}

template <class T>
void expect_same(const entries<T>& a, const entries<T>& b) {
  EXPECT_EQ(a.count, b.count);
  EXPECT_EQ(a.indices, b.indices);
  EXPECT_EQ(bits(a.values), bits(b.values));
  EXPECT_EQ(bits(a.left), bits(b.left));
}

template <class T>
vector<T> random_values(std::size_t n, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, 100);
  vector<T> x(n);
  for (T& v : x) {
    if constexpr (std::is_integral_v<T>)
      v = static_cast<T>(static_cast<std::int64_t>(normal(random))); // modulo the range of an unsigned type
    else
      v = static_cast<T>(normal(random));
  }
  return x;
}

template <class T>
void compare(std::size_t n, std::uint64_t seed) {
  const auto x = random_values<T>(n, seed), added = random_values<T>(n, seed + 1);
  const auto threshold = [](double at) { return spar::kernel::magnitude_of(static_cast<T>(at)); };
  unsigned number = 0;
  for (const double at : {0.0, 90.0}) {
    for (const std::uint64_t room : {std::uint64_t{n}, std::uint64_t{n / 7}}) {
      if (!spar_test::runs_case(3, number++)) continue;
      const auto expected = by_loop<T>(added, x, threshold(at), room, 5);
      expect_same(by_kernel<T>(added, x, threshold(at), room, 5), expected);
      if (at > 0 && room < n) expect_same(by_kernel<T>(added, x, threshold(at), room, 5, false), expected);
    }
  }
  expect_same(by_kernel<T>({}, x, threshold(250), n), by_loop<T>({}, x, threshold(250), n));
  expect_same(by_kernel<T>({}, x, threshold(250), n, 0, false), by_loop<T>({}, x, threshold(250), n));
  expect_same(by_kernel<T>({}, x, threshold(90), 0), by_loop<T>({}, x, threshold(90), 0));
  expect_same(by_kernel<T>({}, x, threshold(1e6), 3), by_loop<T>({}, x, threshold(1e6), 3));
}

TEST(take_at_least, of_every_size_around_a_tile_has_the_bits_of_a_loop) {
  for (const std::size_t n : {0U, 1U, 31U, 33U, 257U, 4608U, 6143U, 6144U, 6145U, 18'433U}) {
    SCOPED_TRACE(n);
    compare<float>(n, n);
  }
}

/// Launches the kernel with few blocks, and tiles that only long vectors have by themselves.
template <class T, class By>
entries<T> by_blocks(vector<T> x, By by, std::uint64_t room, unsigned rows, std::uint64_t blocks) {
  using namespace spar::kernel::detail;
  const std::uint64_t n = x.size(), tiles = spar::detail::tiles_of(n, marking_tile::threads * rows);
  entries<T> out{vector<std::uint32_t>(room), vector<T>(room), std::move(x), ~0ULL};
  vector<std::uint64_t> words(spar::kernel::take_words(n)), count(1);
  spar::detail::launch(take<T, std::uint32_t, By>, blocks, take_block::threads, sizeof(take_memory<T>), nullptr,
                       static_cast<const T*>(nullptr), out.left.data(), out.left.data(), n, rows, tiles, by,
                       std::uint64_t{0}, out.indices.data(), out.values.data(), room, count.data(), words.data());
  kernel_test::finish();
  out.count = count[0];
  return out;
}

TEST(take_at_least, of_many_tiles_by_few_blocks_has_the_bits_of_a_loop) {
  using spar::kernel::detail::marking_tile;
  for (const std::size_t n : {15'359U, 15'360U, 15'361U, 50'000U}) {
    const auto x = random_values<float>(n, n);
    for (const float at : {100.0F, 250.0F}) { // more than shared memory keeps, and fewer
      const auto threshold = spar::kernel::magnitude_of(at);
      const auto expected = by_loop<float>({}, x, threshold, n / 2);
      for (const std::uint64_t blocks : {1U, 3U}) {
        SCOPED_TRACE(testing::Message() << n << " values, " << at << ", " << blocks << " blocks");
        for (const unsigned rows : {marking_tile::least_rows, marking_tile::most_rows}) {
          auto got = by_blocks<float>(x, threshold, n / 2, rows, blocks);
          for (std::size_t e = expected.count; e < n / 2; ++e)
            got.indices[e] = expected.indices[e], got.values[e] = expected.values[e]; // neither has written there
          expect_same(got, expected);
        }
      }
    }
  }
}

TEST(take_at_least, of_every_type_has_the_bits_of_a_loop) {
  compare<double>(5000, 1);
  compare<std::int32_t>(5000, 2);
  compare<std::uint32_t>(5000, 3);
  compare<std::int64_t>(5000, 4);
}

TEST(take_at_least, does_not_depend_on_the_order_of_threads_and_blocks) {
  const auto x = random_values<float>(20'000, 5);
  const auto threshold = spar::kernel::magnitude_of(120.0F);
  const auto expected = by_loop<float>({}, x, threshold, 20'000);
  for (std::uint64_t seed = 1; seed <= (spar_test::runs_all_cases() ? 15 : 2); ++seed) {
    kernel_test::set_order(seed, 1 + static_cast<unsigned>(seed % 8));
    expect_same(by_kernel<float>({}, x, threshold, 20'000), expected);
  }
}

TEST(take_at_least, counts_the_entries_of_many_tiles) {
  const auto x = random_values<float>(36 * 6144 + 5, 8);
  const auto threshold = spar::kernel::magnitude_of(120.0F);
  kernel_test::set_order(1, 36); // the last tile waits for all 36 before it
  expect_same(by_kernel<float>({}, x, threshold, x.size()), by_loop<float>({}, x, threshold, x.size()));
}

__global__ void sum_before(std::uint64_t* words, std::uint64_t* before) {
  auto& shared = spar::detail::block_memory<spar::detail::tiles::block_state>();
  const spar::detail::tiles all(words);
  const std::uint64_t tile = all.take(shared), sum = all.outputs_before(tile, tile + 1, shared);
  if (threadIdx.x == 0) before[tile] = sum;
}

TEST(tiles, look_back_beyond_the_tiles_that_a_warp_reads_at_once) {
  constexpr std::uint64_t count = 300;
  vector<std::uint64_t> words(spar::detail::tiles::words(count)), before(count);
  kernel_test::set_order(1, 290); // so many wait for the first ones
  spar::detail::launch(sum_before, count, spar::detail::warp_size, sizeof(spar::detail::tiles::block_state), nullptr,
                       words.data(), before.data());
  kernel_test::finish();
  for (std::uint64_t tile = 0; tile < count; ++tile) EXPECT_EQ(before[tile], tile * (tile + 1) / 2);
}

TEST(take_at_least, keeps_ties_special_values_and_signs) {
  constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  constexpr float tiny = std::numeric_limits<float>::denorm_min();
  vector<float> x;
  for (int i = 0; i < 600; ++i) x.insert(x.end(), {1, -1, 0, -0.0F, nan, -nan, inf, -inf, tiny, -tiny, 2, 1});
  for (const float at : {0.0F, tiny, 1.0F, std::nextafter(1.0F, 2.0F), inf}) {
    const auto threshold = spar::kernel::magnitude_of(at);
    expect_same(by_kernel<float>({}, x, threshold, x.size()), by_loop<float>({}, x, threshold, x.size()));
  }
}

/// Finds and takes the k largest by kernels, and compares the cut, the entries and the rest with the host's.
template <class T>
void compare_largest(const vector<T>& x, std::uint64_t k) {
  SCOPED_TRACE(testing::Message() << k << " of " << x.size());
  spar::pool memory;
  auto rest = x;
  const auto expected = spar::kernel::largest(std::span<const T>(rest), k, memory);
  vector<std::uint32_t> indices(expected.count);
  vector<T> values(expected.count);
  spar::kernel::take_largest(std::span<T>(rest), expected, 5, indices.data(), values.data());

  vector<spar::kernel::cut<T>> cut(1);
  const auto expect_cut = [&] {
    EXPECT_EQ(cut[0].threshold, expected.threshold);
    EXPECT_EQ(cut[0].count, expected.count);
    EXPECT_EQ(cut[0].ties, expected.ties);
    EXPECT_EQ(cut[0].equal, expected.equal);
  };
  const entries<T> taken{indices, values, rest, expected.count};
  unaligned<T> in(x), out_v(expected.count);
  unaligned<std::uint32_t> out_i(expected.count);
  vector<std::max_align_t> work(spar::kernel::largest_bytes<T>(x.size(), k) / sizeof(std::max_align_t) + 1);
  spar::kernel::start_largest(in.data(), x.size(), k, cut.data(), work.data(), nullptr);
  kernel_test::finish();
  expect_cut();
  unaligned<std::uint64_t> words(spar::kernel::take_words(x.size())), count(1);
  spar::kernel::start_take_largest(in.data(), x.size(), cut.data(), 5, out_i.data(), out_v.data(), count.data(),
                                   words.data(), nullptr);
  kernel_test::finish();
  expect_same(entries<T>{out_i.copy(), out_v.copy(), in.copy(), count.copy()[0]}, taken);

  // Both steps at once.
  unaligned<T> both(x), both_v(expected.count);
  unaligned<std::uint32_t> both_i(expected.count);
  vector<std::max_align_t> more(spar::kernel::topk_bytes<T, std::uint32_t>(x.size(), k) / sizeof(std::max_align_t) + 1);
  cut[0] = {};
  spar::kernel::start_topk(both.data(), x.size(), k, 5, both_i.data(), both_v.data(), cut.data(), more.data(), nullptr);
  kernel_test::finish();
  expect_same(entries<T>{both_i.copy(), both_v.copy(), both.copy(), expected.count}, taken);
  expect_cut();
}

TEST(largest, of_every_number_and_type_is_that_of_the_host) {
  unsigned number = 0;
  for (const std::size_t n : {0U, 1U, 5U, 4096U, 5000U}) {
    for (const std::uint64_t k : {0U, 1U, 4U, 100U, 4999U, 6000U}) {
      if (spar_test::runs_case(2, number++)) compare_largest(random_values<float>(n, n + k), k);
    }
    ++number; // other numbers for the next size
  }
  compare_largest(random_values<double>(5000, 1), 300);
  compare_largest(random_values<std::int32_t>(5000, 2), 300);
  compare_largest(random_values<std::int64_t>(5000, 3), 300);
}

TEST(largest, takes_nothing_if_k_is_0) {
  constexpr std::uint32_t greatest_nan = 0x7fffffff;
  compare_largest(vector<float>(40, std::bit_cast<float>(greatest_nan)), 0);
  compare_largest(vector<std::int32_t>(40, std::numeric_limits<std::int32_t>::min()), 0);
}

TEST(largest, takes_the_first_of_equal_values) {
  std::mt19937_64 random(6);
  unsigned number = 0;
  for (const unsigned values : {1U, 2U, 3U, 40U}) { // different magnitudes
    vector<float> x(13'000);
    for (float& v : x) v = static_cast<float>(random() % (values + 1)) * (random() % 2 == 0 ? 1.0F : -1.0F);
    for (const std::uint64_t k : {1U, 31U, 4000U, 9000U, 13'000U}) {
      if (spar_test::runs_case(4, number++)) compare_largest(x, k);
    }
  }
}

TEST(largest, begins_with_a_sample_of_a_long_vector) {
  const std::size_t n = 20'000;
  ASSERT_TRUE(spar::kernel::detail::sample_plan(n, 50).useful);
  compare_largest(random_values<float>(n, 7), 50);
  vector<float> x(n); // few nonzeros: the sample's threshold finds too few candidates
  x[17] = 3, x[19'999] = -4, x[5000] = 1;
  compare_largest(x, 50);
  for (std::size_t i = 0; i < n; ++i) x[i] = i % 2 == 0 ? 1.0F : -1.0F; // too many candidates
  compare_largest(x, 50);
  for (std::size_t i = 0; i < 60; ++i) x[100 + i] = std::numeric_limits<float>::quiet_NaN();
  compare_largest(x, 50);
  const spar::kernel::detail::sample_plan plan(n, 50);
  for (std::size_t p = 0; p < plan.rank; ++p) // the sample finds only the largest: too few candidates
    x[p * plan.length + spar::kernel::detail::scatter_of(p, plan.length)] = static_cast<float>(1000 + p);
  ASSERT_LT(plan.rank, 50U);
  for (float& v : x) v = std::isnan(v) ? 2 : v;
  compare_largest(x, 50);
  ASSERT_TRUE(spar::kernel::detail::sample_plan(2 * n, 6000).useful); // two tiles of candidates
  auto more = random_values<float>(2 * n, 12);
  compare_largest(more, 6000);
  for (float& v : more) v = std::round(v / 16); // some of its ties are taken
  compare_largest(more, 6000);
}

TEST(largest, takes_the_first_of_equal_values_from_many_tiles_by_few_blocks) {
  using spar::kernel::detail::marking_tile;
  const std::size_t n = 50'000;
  vector<float> x = random_values<float>(n, 11);
  for (float& v : x) v = std::round(v / 40);
  for (const std::uint64_t k : {5000U, 20'000U}) {
    auto rest = x;
    spar::pool memory;
    const auto expected = spar::kernel::largest(std::span<const float>(x), k, memory);
    ASSERT_LT(expected.ties, expected.equal);
    vector<std::uint32_t> indices(expected.count);
    vector<float> values(expected.count);
    spar::kernel::take_largest(std::span(rest), expected, 0, indices.data(), values.data());
    const vector<spar::kernel::cut<float>> where{expected};
    for (const std::uint64_t blocks : {1U, 3U}) {
      const auto got = by_blocks<float>(x, where.data(), expected.count, marking_tile::least_rows, blocks);
      expect_same(got, entries<float>{indices, values, rest, expected.count});
    }
  }
}

TEST(largest, does_not_depend_on_the_order_of_threads_and_blocks) {
  auto x = random_values<float>(20'000, 9);
  for (float& v : x) v = std::round(v / 8); // ties
  for (std::uint64_t seed = 1; seed <= (spar_test::runs_all_cases() ? 8 : 2); ++seed) {
    kernel_test::set_order(seed, 1 + static_cast<unsigned>(seed % 8));
    compare_largest(x, 60);
  }
}

template <class T>
void compare_buckets(const vector<T>& x, std::uint64_t bucket, std::uint64_t k) {
  SCOPED_TRACE(testing::Message() << k << " of each " << bucket << " of " << x.size());
  spar::pool memory;
  auto rest = x;
  vector<std::uint32_t> indices(x.size());
  vector<T> values(x.size());
  const std::size_t count =
      spar::kernel::take_from_buckets(std::span<T>(rest), bucket, k, indices.data(), values.data(), memory);
  indices.resize(count), values.resize(count);
  unaligned<T> in(x), out_v(count);
  unaligned<std::uint32_t> out_i(count);
  unaligned<std::uint64_t> words(spar::kernel::bucket_words(x.size(), bucket), 0xdeadbeef), counted(1);
  spar::kernel::start_take_from_buckets(in.data(), x.size(), bucket, k, out_i.data(), out_v.data(), counted.data(),
                                        words.data(), nullptr);
  kernel_test::finish();
  expect_same(entries<T>{out_i.copy(), out_v.copy(), in.copy(), counted.copy()[0]},
              entries<T>{indices, values, rest, count});
}

TEST(buckets, of_every_size_have_the_bits_of_the_host) {
  unsigned number = 0;
  for (const std::size_t n : {1U, 31U, 1536U, 1703U}) {
    for (const std::uint64_t bucket : {1U, 3U, 32U, 33U, 512U, 1000U, 1703U}) {
      for (const std::uint64_t k : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{5}, bucket / 2, bucket}) {
        if (k > bucket || bucket > n || !spar_test::runs_case(5, number++)) continue;
        compare_buckets(random_values<float>(n, n + bucket), bucket, k);
      }
    }
  }
}

TEST(buckets, of_every_type_have_the_bits_of_the_host) {
  compare_buckets(random_values<double>(700, 1), 100, 10);
  compare_buckets(random_values<std::int32_t>(700, 2), 100, 10);
  compare_buckets(random_values<std::int64_t>(700, 3), 100, 10);
}

TEST(buckets, have_less_than_2_to_32_values) {
  constexpr std::uint64_t most = 0xffffffff;
  compare_buckets(random_values<float>(31, 5), most, 7);
  float x = 1, value = 0;
  std::uint32_t index = 0;
  std::uint64_t count = 0;
  vector<std::uint64_t> words(spar::kernel::bucket_words(1, most + 1));
  EXPECT_THROW(spar::kernel::start_take_from_buckets(&x, 1, most + 1, 1, &index, &value, &count, words.data(), nullptr),
               spar::invalid_argument);
}

TEST(buckets, take_the_first_of_equal_values_and_no_zeros) {
  std::mt19937_64 random(4);
  constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const unsigned different : {1U, 2U, 40U}) {
    vector<float> x(900);
    for (float& v : x) v = static_cast<float>(random() % (different + 1)) * (random() % 2 == 0 ? 1.0F : -1.0F);
    std::fill_n(x.begin() + 100, 150, 0.0F); // a bucket without entries, and one with a few
    x[120] = -inf, x[201] = nan, x[202] = -nan, x[203] = inf, x[210] = 1;
    for (const std::uint64_t k : {1U, 7U, 80U, 100U}) compare_buckets(x, 100, k);
  }
}

TEST(buckets, do_not_depend_on_the_order_of_threads_and_blocks) {
  auto x = random_values<float>(3000, 9);
  for (float& v : x) v = std::round(v / 8); // ties
  for (std::uint64_t seed = 1; seed <= (spar_test::runs_all_cases() ? 8 : 2); ++seed) {
    kernel_test::set_order(seed, 1 + static_cast<unsigned>(seed % 8));
    compare_buckets(x, 60, 9);
  }
}

} // namespace
