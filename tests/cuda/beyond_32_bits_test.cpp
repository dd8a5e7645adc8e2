// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernels on vectors of more than 2^32 values: only the last blocks run, on the last values. The other values exist
// only as addresses.
#include "on_host.hpp"

#include <spar/cuda/kernel/dense.cuh>
#include <spar/cuda/kernel/largest.cuh>
#include <spar/cuda/kernel/merge.cuh>
#include <spar/cuda/kernel/merge_many.cuh>
#include <spar/cuda/kernel/partition.cuh>
#include <spar/cuda/kernel/qsgd.cuh>
#include <spar/cuda/kernel/search.cuh>
#include <spar/cuda/kernel/short_floats.cuh>
#include <spar/cuda/kernel/take.cuh>
#include <spar/cuda/kernel/zfp.cuh>
#include <spar/storage/kernel/qsgd.hpp>

#include <gtest/gtest.h>

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <new>
#include <vector>

namespace {

using namespace spar::kernel;

constexpr std::uint64_t n = (std::uint64_t{1} << 33) + 12345;
constexpr std::uint64_t some = 700, first = n - some; // the values that the tests look at

constexpr std::uint64_t before = (std::uint64_t{1} << 32) + 99; // outputs of the tiles before the last ones
constexpr std::uint64_t base = std::uint64_t{1} << 40;          // of indices

/// An array whose pages get memory when they are written.
template <class T>
class sparse_array {
 public:
  explicit sparse_array(std::uint64_t size) : bytes_(static_cast<std::size_t>(size) * sizeof(T)) {
    void* const p = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    data_ = static_cast<T*>(p);
  }
  sparse_array(const sparse_array&) = delete;
  ~sparse_array() { munmap(data_, bytes_); }

  [[nodiscard]] T* data() const { return data_; }
  void write(std::uint64_t at, const std::vector<T>& values) const {
    std::copy(values.begin(), values.end(), data_ + at);
  }
  [[nodiscard]] std::vector<T> read(std::uint64_t at, std::uint64_t count) const {
    return std::vector<T>(data_ + at, data_ + at + count);
  }

 private:
  std::size_t bytes_;
  T* data_ = nullptr;
};

std::vector<float> values(float scale) {
  std::vector<float> x(some);
  for (std::size_t i = 0; i < some; ++i) x[i] = scale * static_cast<float>(i * 7919 % 1000) - 300;
  return x;
}

class beyond_32_bits : public testing::Test {
 protected:
  static constexpr unsigned last_blocks = 4; // contain all values that the tests look at

  void SetUp() override { on_host::machine::last_blocks = last_blocks; }
  void TearDown() override { on_host::machine::last_blocks = 0; }
};

TEST_F(beyond_32_bits, combine_and_finish) {
  const sparse_array<float> a(n), b(n);
  const std::vector<float> left = values(1), right = values(2);
  a.write(first, left), b.write(first, right);
  start_combine(a.data(), b.data(), n, b.data(), spar::sum{}, nullptr);
  start_finalize(b.data(), n, 4, spar::average{}, nullptr);
  std::vector<float> expected(some);
  for (std::size_t i = 0; i < some; ++i) expected[i] = (left[i] + right[i]) / 4;
  EXPECT_EQ(b.read(first, some), expected);
}

TEST_F(beyond_32_bits, add_and_find) {
  const sparse_array<float> a(n), b(n), sum(n);
  const std::vector<float> left = values(1), right = values(2);
  a.write(first, left), b.write(first, right);
  start_add(a.data(), b.data(), n, sum.data(), nullptr);
  std::vector<float> expected(some);
  for (std::size_t i = 0; i < some; ++i) expected[i] = left[i] + right[i];
  EXPECT_EQ(sum.read(first, some), expected);
  std::uint32_t found = 0;
  const auto at_the_end = [&](float v) { return v == expected.back() + 1; };
  start_find_any(sum.data(), n, &found, at_the_end, nullptr);
  EXPECT_EQ(found, 0U);
  sum.data()[n - 1] += 1;
  start_find_any(sum.data(), n, &found, at_the_end, nullptr);
  EXPECT_EQ(found, 1U);
}

TEST_F(beyond_32_bits, short_floats) {
  const sparse_array<float> x(n);
  const sparse_array<std::uint16_t> code(n);
  x.write(first, values(1));
  start_encode_short<bfloat16_code>(x.data(), n, code.data(), nullptr);
  start_decode_short<bfloat16_code>(code.data(), n, x.data(), nullptr);
  std::vector<float> expected = values(1);
  for (float& v : expected) v = spar::kernel::float_of<bfloat16_code>(spar::kernel::short_of<bfloat16_code>(v));
  EXPECT_EQ(x.read(first, some), expected);
  const std::vector<float> added = values(2);
  x.write(first, added);
  start_reduce_short<bfloat16_code>(code.data(), n, x.data(), spar::sum{}, nullptr);
  for (std::size_t i = 0; i < some; ++i) expected[i] += added[i];
  EXPECT_EQ(x.read(first, some), expected);
}

TEST_F(beyond_32_bits, qsgd) {
  constexpr std::uint64_t bucket = 256, whole = n / bucket - 1, begin = whole * bucket; // the last buckets
  using codec = qsgd_codec<8>;
  const std::size_t at = whole * codec::encoded_bytes<float>(bucket, bucket);
  const sparse_array<float> x(n);
  const sparse_array<std::byte> code(codec::encoded_bytes<float>(n, bucket));
  x.write(first, values(1));
  start_qsgd_encode<8>(x.data(), n, bucket, code.data(), 5, 6, 7, nullptr);
  const std::vector<float> last = x.read(begin, n - begin);
  std::vector<std::byte> expected(codec::encoded_bytes<float>(last.size(), bucket));
  codec::encode(last.data(), last.size(), bucket, expected.data(), 5, 6, 7 + begin);
  EXPECT_EQ(code.read(at, expected.size()), expected);
  start_qsgd_decode<8>(code.data(), n, bucket, x.data(), nullptr);
  std::vector<float> decoded(last.size());
  codec::decode(expected.data(), decoded.size(), bucket, decoded.data());
  EXPECT_EQ(x.read(begin, decoded.size()), decoded);
}

TEST_F(beyond_32_bits, zfp) {
  constexpr unsigned bits = 32; // for four values
  constexpr std::uint64_t begin = first / 64 * 64;
  const sparse_array<float> x(n);
  const sparse_array<std::uint32_t> code(zfp_words(n, bits));
  x.write(first, values(1));
  start_zfp_encode(x.data(), n, bits, code.data(), nullptr);
  const std::vector<float> last = x.read(begin, n - begin);
  std::vector<std::uint32_t> expected(zfp_words(last.size(), bits));
  on_host::machine::last_blocks = 0;
  start_zfp_encode(last.data(), last.size(), bits, expected.data(), nullptr); // like a short vector
  EXPECT_EQ(code.read(begin / 4, expected.size()), expected);
  std::vector<float> decoded(last.size());
  start_zfp_decode(expected.data(), decoded.size(), bits, decoded.data(), nullptr);
  on_host::machine::last_blocks = last_blocks;
  start_zfp_decode(code.data(), n, bits, x.data(), nullptr);
  EXPECT_EQ(x.read(begin, decoded.size()), decoded);
}

TEST_F(beyond_32_bits, scatter) {
  on_host::machine::last_blocks = 0;
  const sparse_array<float> x(n);
  const std::vector<std::uint64_t> indices = {0, (std::uint64_t{1} << 32) - 1, std::uint64_t{1} << 32, n - 1};
  const std::vector<float> entries = {1, 2, 3, 4};
  start_scatter_assign(indices.data(), entries.data(), entries.size(), 0, x.data(), nullptr);
  start_scatter(indices.data(), entries.data(), entries.size(), 0, x.data(), spar::sum{}, nullptr);
  for (std::size_t e = 0; e < entries.size(); ++e) EXPECT_EQ(x.data()[indices[e]], 2 * entries[e]);
}

/// Streams of n entries each. The entries before the last ones have the index 0, as if they were one entry, so the
/// searches for the last entries of a tile pass over all of them.
struct long_stream {
  long_stream(std::uint64_t begin, std::uint64_t step, float scale) : indices(n), entries(n) {
    entries.write(first, values(scale));
    for (std::uint64_t i = 0; i < some; ++i) indices.data()[first + i] = begin + i * step;
  }
  [[nodiscard]] device_coo<float, std::uint64_t> stream() const { return {indices.data(), entries.data(), n}; }
  /// Adds the last entries to those of a sum.
  void add_to(std::map<std::uint64_t, float>& sum) const {
    for (std::uint64_t i = first; i < n; ++i) {
      const auto [at, is_new] = sum.try_emplace(indices.data()[i], entries.data()[i]);
      if (!is_new) at->second += entries.data()[i];
    }
  }

  sparse_array<std::uint64_t> indices;
  sparse_array<float> entries;
};

/// Entries with positions and indices above 2^32, in two tiles.
TEST_F(beyond_32_bits, write_entries) {
  using tile = detail::written_tile<float>;
  constexpr std::uint64_t begin = 1000;
  const long_stream entries(begin + n - 7 * some, 7, 1);
  const sparse_array<float> x(n);
  start_write_entries(entries.indices.data(), entries.entries.data(), n, begin, x.data(), n, -1.0F, nullptr);
  ASSERT_LT(n % tile::size, 7 * some);
  const std::uint64_t from = (spar::detail::tiles_of(n, tile::size) - last_blocks) * tile::size;
  std::vector<float> expected(n - from, -1);
  const std::vector<float> last = values(1);
  for (std::size_t i = 0; i < some; ++i) expected[n - 7 * some + 7 * i - from] = last[i];
  EXPECT_EQ(x.read(from, n - from), expected);
}

/// Entries and listed indices with positions and indices above 2^32.
TEST_F(beyond_32_bits, assign_unlisted) {
  const long_stream entries(n - 3 * some, 3, 1), listed(n - 3 * some, 2, 1);
  const sparse_array<float> x(n);
  start_assign_unlisted(entries.indices.data(), entries.entries.data(), n, listed.indices.data(), n, x.data(), nullptr);
  std::vector<float> expected(3 * some);
  const std::vector<float> last = values(1);
  for (std::size_t i = 0; i < some; ++i)
    if (i % 2 != 0 || 3 * i >= 2 * some) expected[3 * i] = last[i];
  EXPECT_EQ(x.read(n - 3 * some, 3 * some), expected);
}

/// The last values are those of two pieces, which begin after more than 2^32 entries.
TEST_F(beyond_32_bits, copy_entries) {
  constexpr std::uint64_t of_last = 300, of_third = n - before - 5 - of_last, seen = some - of_last;
  const sparse_array<std::uint64_t> indices(of_third), out_i(n);
  const sparse_array<float> entries(of_third), out_v(n);
  std::vector<std::uint64_t> expected(some);
  for (std::size_t i = 0; i < some; ++i) expected[i] = n + 3 * i;
  const std::vector<float> last = values(1);
  indices.write(of_third - seen, {expected.begin(), expected.begin() + seen});
  entries.write(of_third - seen, {last.begin(), last.begin() + seen});
  entry_pieces<float, std::uint64_t> from;
  from.add(indices.data(), entries.data(), before); // read by none of the last blocks, like the next piece
  from.add(indices.data(), entries.data(), 5);
  from.add(indices.data(), entries.data(), of_third);
  from.add(expected.data() + seen, last.data() + seen, of_last);
  start_copy_entries(from, out_i.data(), out_v.data(), nullptr);
  EXPECT_EQ(out_i.read(first, some), expected);
  EXPECT_EQ(out_v.read(first, some), last);
}

TEST_F(beyond_32_bits, gather) {
  const sparse_array<std::uint64_t> indices(n);
  const sparse_array<float> x(n), out(n);
  std::vector<std::uint64_t> backwards(some);
  for (std::size_t i = 0; i < some; ++i) backwards[i] = n - 1 - i;
  std::vector<float> expected = values(1);
  indices.write(first, backwards), x.write(first, expected);
  start_gather(x.data(), indices.data(), n, out.data(), nullptr);
  std::reverse(expected.begin(), expected.end());
  EXPECT_EQ(out.read(first, some), expected);
}

TEST_F(beyond_32_bits, scatter_difference) {
  const sparse_array<float> exact(n), decoded(n), x(n);
  const std::vector<float> values_of_x(some, 3), sent = values(1);
  exact.write(first, sent), x.write(first, values_of_x);
  start_scatter_difference(static_cast<const std::uint64_t*>(nullptr), exact.data(), decoded.data(), n, x.data(),
                           nullptr); // of all values
  std::vector<float> expected(some);
  for (std::size_t i = 0; i < some; ++i) expected[i] = 3 + sent[i];
  EXPECT_EQ(x.read(first, some), expected);
  on_host::machine::last_blocks = 0;
  const std::vector<std::uint64_t> indices = {5, (std::uint64_t{1} << 32) + 5, n - 1};
  const std::vector<float> from = {1, 2, 3}, to = {0.5F, 0.5F, 0.5F};
  start_scatter_difference(indices.data(), from.data(), to.data(), indices.size(), x.data(), nullptr);
  EXPECT_EQ(x.data()[5], 0.5F);
  EXPECT_EQ(x.data()[(std::uint64_t{1} << 32) + 5], 1.5F);
  EXPECT_EQ(x.data()[n - 1], expected.back() + 2.5F);
}

/// The last tiles, after more than 2^32 values of other blocks: here, a block has one tile.
TEST_F(beyond_32_bits, count_reached) {
  using grid = detail::probe_grid;
  const sparse_array<float> x(n);
  const std::vector<float> last = values(1);
  x.write(first, last);
  magnitude_probes<float> probes{.probe = {}, .count = 3};
  const float at[] = {1, 100, 250};
  for (std::size_t p = 0; p < 3; ++p) probes.probe[p] = magnitude_of(at[p]);
  std::vector<std::uint64_t> expected(grid::bins);
  for (const float v : last) {
    std::size_t reached = 0;
    while (reached < 3 && std::fabs(v) >= at[reached]) ++reached;
    ++expected[reached];
  }
  const std::uint64_t blocks = spar::detail::tiles_of(n, grid::values);
  expected[0] += n - (blocks - last_blocks) * grid::values - some; // zeros before
  expected[3] += before;
  std::vector<std::uint64_t> reached(grid::bins), words(grid::words);
  words[3] = before;
  words[grid::bins] = blocks - last_blocks; // have counted
  spar::detail::launch(detail::count_reached<float>, blocks, grid::threads, sizeof(grid::memory<float>), nullptr,
                       x.data(), n, probes, reached.data(), reinterpret_cast<unsigned long long*>(words.data()));
  EXPECT_EQ(reached, expected);
}

TEST_F(beyond_32_bits, fill_and_search) {
  const sparse_array<std::uint64_t> indices(n); // zeros, except in the last blocks
  start_fill(indices.data(), n, std::uint64_t{5}, nullptr);
  EXPECT_EQ(indices.read(first, some), std::vector<std::uint64_t>(some, 5));
  std::vector<std::uint64_t> ascending(spar::detail::row_tile::values * last_blocks);
  for (std::size_t i = 0; i < ascending.size(); ++i) ascending[i] = n + i;
  indices.write(n - ascending.size(), ascending);
  std::uint32_t bad = 0;
  start_check_indices(indices.data(), n, n, n + ascending.size(), &bad, nullptr);
  EXPECT_EQ(bad, 0U);
  start_check_indices(indices.data(), n, n, n + ascending.size() - 1, &bad, nullptr);
  EXPECT_EQ(bad, 1U);
  const std::vector<std::uint64_t> bounds = {0, n + 1, ~std::uint64_t{0}};
  std::vector<std::uint64_t> positions(3);
  start_find_bounds(indices.data(), n, bounds.data(), bounds.size(), positions.data(), nullptr);
  EXPECT_EQ(positions, (std::vector<std::uint64_t>{0, n - ascending.size() + 1, n}));
}

/// Prepares the words of `blocks` tiles for a launch that runs only the last ones.
void begin_late(std::uint64_t* words, std::uint64_t blocks, unsigned last_blocks) {
  const std::uint64_t begun = blocks - last_blocks;
  words[0] = begun;                                                        // the number of tiles that blocks have taken
  for (std::uint64_t lane = 1; lane < 32; ++lane) words[begun - lane] = 1; // tiles that count their own entries: none
  words[begun] = before << 2 | 2; // the tile before counts the entries through this tile
}

/// The last tiles, after more than 2^32 entries of the tiles before.
TEST_F(beyond_32_bits, take) {
  constexpr std::uint64_t begin = 1000;
  const std::uint64_t blocks = detail::marking_tile::count(n);
  const sparse_array<float> x(n), out_v(n);
  const sparse_array<std::uint64_t> out_i(n), words(take_words(n));
  const std::vector<float> last = values(1);
  x.write(first, last);
  begin_late(words.data(), blocks, last_blocks);
  std::uint64_t count = 0;
  const magnitude<float> threshold = magnitude_of(200.0F);
  spar::detail::launch(detail::take<float, std::uint64_t, magnitude<float>>, 2, detail::take_block::threads,
                       sizeof(detail::take_memory<float>), nullptr, static_cast<const float*>(nullptr), x.data(),
                       x.data(), n, detail::marking_tile::rows_of(n), blocks, threshold, begin, out_i.data(),
                       out_v.data(), n, &count, words.data());
  std::vector<std::uint64_t> indices;
  std::vector<float> entries, left = last;
  for (std::size_t i = 0; i < some; ++i) {
    if (magnitude_of(last[i]) < threshold) continue;
    indices.push_back(begin + first + i), entries.push_back(last[i]);
    left[i] = 0;
  }
  ASSERT_GT(entries.size(), 10U);
  EXPECT_EQ(count, before + entries.size());
  EXPECT_EQ(out_i.read(before, entries.size()), indices);
  EXPECT_EQ(out_v.read(before, entries.size()), entries);
  EXPECT_EQ(x.read(first, some), left);
}

/// The last tiles, after more than 2^32 entries and ties of the tiles before.
TEST_F(beyond_32_bits, partition) {
  constexpr std::uint64_t ties = before + 20, begin = 1000;
  const std::uint64_t blocks = detail::partition_tile::count(n), begun = blocks - last_blocks;
  const sparse_array<float> x(n), kept_v(n), other_v(n);
  const sparse_array<std::uint64_t> kept_i(n), other_i(n);
  std::vector<float> last = values(1);
  for (std::size_t i = 0; i < some; i += 9) last[i] = i % 2 == 0 ? 200 : -200;
  x.write(first, last);
  std::vector<std::uint64_t> words(partition_words(n));
  words[0] = begun;
  for (const std::uint64_t of : {std::uint64_t{0}, blocks + 1}) { // the tiles and their ties
    for (std::uint64_t lane = 1; lane < 32; ++lane) words[of + begun - lane] = 1;
    words[of + begun] = before << 2 | 2;
  }
  std::uint64_t count = 0;
  const by_cut<float> keep{{magnitude_of(200.0F), 0, ties, ~std::size_t{0}}};
  spar::detail::launch(detail::partition<float, std::uint64_t, by_cut<float>, device_coo<float, std::uint64_t>>, blocks,
                       detail::partition_tile::threads, sizeof(detail::partition_tile::memory), nullptr,
                       device_coo<float, std::uint64_t>{nullptr, x.data(), n}, begin, keep, kept_i.data(),
                       kept_v.data(), other_i.data(), other_v.data(), &count, words.data());
  std::vector<std::uint64_t> kept, others;
  std::vector<float> kept_values, other_values;
  std::uint64_t left = ties - before;
  for (std::size_t i = 0; i < some; ++i) {
    const bool tie = std::fabs(last[i]) == 200;
    const bool stays = std::fabs(last[i]) > 200 || (tie && left > 0 && left-- > 0);
    (stays ? kept : others).push_back(begin + first + i);
    (stays ? kept_values : other_values).push_back(last[i]);
  }
  EXPECT_EQ(left, 0U);
  EXPECT_EQ(count, before + kept.size());
  EXPECT_EQ(kept_i.read(before, kept.size()), kept);
  EXPECT_EQ(kept_v.read(before, kept.size()), kept_values);
  EXPECT_EQ(other_i.read(first - before, others.size()), others);
  EXPECT_EQ(other_v.read(first - before, others.size()), other_values);
}

/// The last tiles, after more than 2^32 entries of the tiles before, with indices and without.
TEST_F(beyond_32_bits, copy_differing) {
  constexpr std::uint64_t begin = 1000;
  const std::uint64_t blocks = detail::marking_tile::count(n);
  const sparse_array<float> x(n), out_v(n);
  const sparse_array<std::uint64_t> indices(n), out_i(n), words(differing_words(n));
  std::vector<float> last = values(1), entries;
  std::vector<std::uint64_t> at(some);
  for (std::size_t i = 0; i < some; ++i) {
    at[i] = base + 5 * i;
    if (i % 4 != 0) last[i] = 0;
    if (last[i] != 0) entries.push_back(last[i]);
  }
  x.write(first, last), indices.write(first, at);
  ASSERT_GT(entries.size(), 100U);
  for (const bool indexed : {true, false}) {
    begin_late(words.data(), blocks, last_blocks);
    std::uint64_t count = 0;
    spar::detail::launch(detail::copy_differing<float, std::uint64_t>, blocks, detail::marking_tile::threads,
                         sizeof(detail::differing_memory<float>), nullptr,
                         device_coo<float, std::uint64_t>{indexed ? indices.data() : nullptr, x.data(), n},
                         detail::marking_tile::rows_of(n), begin, 0.0F, out_i.data(), out_v.data(), &count,
                         words.data());
    std::vector<std::uint64_t> expected;
    for (std::size_t i = 0; i < some; ++i)
      if (last[i] != 0) expected.push_back(indexed ? at[i] : begin + first + i);
    EXPECT_EQ(count, before + entries.size());
    EXPECT_EQ(out_i.read(before, entries.size()), expected);
    EXPECT_EQ(out_v.read(before, entries.size()), entries);
  }
}

/// The k largest after more than 2^32 entries above the threshold, and more than 2^32 ties, of the tiles before.
TEST_F(beyond_32_bits, take_largest) {
  constexpr std::uint64_t more_ties = 7;
  const std::uint64_t blocks = detail::marking_tile::count(n);
  const sparse_array<float> x(n), out_v(n);
  const sparse_array<std::uint64_t> out_i(n), words(take_words(n));
  std::vector<float> last = values(1);
  for (std::size_t i = 0; i < some; i += 3) last[i] = i % 2 == 0 ? 200.0F : -200.0F;
  x.write(first, last);
  begin_late(words.data(), blocks, last_blocks);
  begin_late(words.data() + blocks + 1, blocks, last_blocks); // of the ties, of which no block takes a tile
  const cut<float> where{magnitude_of(200.0F), 3 * before, before + more_ties, 2 * before};
  std::uint64_t count = 0;
  spar::detail::launch(detail::take<float, std::uint64_t, const cut<float>*>, 2, detail::take_block::threads,
                       sizeof(detail::take_memory<float>), nullptr, static_cast<const float*>(nullptr), x.data(),
                       x.data(), n, detail::marking_tile::rows_of(n), blocks, &where, std::uint64_t{0}, out_i.data(),
                       out_v.data(), n, &count, words.data());
  std::vector<std::uint64_t> indices;
  std::vector<float> entries, left = last;
  std::uint64_t ties = 0;
  for (std::size_t i = 0; i < some; ++i) {
    const auto m = magnitude_of(last[i]);
    if (m < where.threshold || (m == where.threshold && ties++ >= more_ties)) continue;
    indices.push_back(first + i), entries.push_back(last[i]);
    left[i] = 0;
  }
  ASSERT_GT(ties, more_ties);
  EXPECT_EQ(count, 2 * before + entries.size());
  EXPECT_EQ(out_i.read(2 * before, entries.size()), indices);
  EXPECT_EQ(out_v.read(2 * before, entries.size()), entries);
  EXPECT_EQ(x.read(first, some), left);
}

TEST_F(beyond_32_bits, sample) {
  const detail::sample_plan plan(n, n / 100);
  ASSERT_TRUE(plan.useful);
  const sparse_array<float> x(n), sample(plan.parts);
  const std::uint64_t begin = plan.parts - some;
  for (std::uint64_t p = begin; p < plan.parts; ++p)
    x.data()[p * plan.length + detail::scatter_of(p, plan.length)] = static_cast<float>(p - begin + 1);
  spar::detail::launch(detail::take_sample<float>, spar::detail::tiles_of(plan.parts, detail::digit_grid::threads),
                       detail::digit_grid::threads, 0, nullptr, x.data(), plan.parts, plan.length, sample.data());
  for (std::uint64_t p = begin; p < plan.parts; ++p) EXPECT_EQ(sample.data()[p], static_cast<float>(p - begin + 1));
}

/// The candidates of the last tiles, after more than 2^32 candidates of other tiles.
TEST_F(beyond_32_bits, candidates) {
  const sparse_array<float> x(n), out(n);
  const std::vector<float> last = values(1);
  x.write(first, last);
  const cut<float> guess{.threshold = magnitude_of(200.0F)};
  std::uint64_t count = before;
  spar::detail::launch(detail::copy_candidates<float>, detail::marking_tile::count(n), detail::marking_tile::threads,
                       sizeof(detail::candidates_memory<float>), nullptr, x.data(), n, detail::marking_tile::rows_of(n),
                       &guess, out.data(), n, &count);
  std::vector<float> expected;
  for (const float v : last)
    if (magnitude_of(v) >= guess.threshold) expected.push_back(v);
  ASSERT_EQ(count, before + expected.size());
  std::vector<float> found = out.read(before, expected.size()); // in any order of the blocks
  std::sort(found.begin(), found.end());
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(found, expected);
}

/// The candidates of the last tiles, after more than 2^32 of the k largest and ties of the tiles before.
TEST_F(beyond_32_bits, divide_candidates) {
  constexpr std::uint64_t ties = before + 20, begin = 1000, count = n, to = n - 3 * some;
  const std::uint64_t blocks = detail::partition_tile::count(n);
  const sparse_array<float> candidates(n), x(n), out_v(n);
  const sparse_array<std::uint64_t> positions(n), out_i(n), words(partition_words(n));
  std::vector<float> last = values(1);
  for (std::size_t i = 0; i < some; i += 9) last[i] = i % 2 == 0 ? 200 : -200;
  candidates.write(first, last);
  for (std::uint64_t i = 0; i < some; ++i) positions.data()[first + i] = to + 3 * i;
  begin_late(words.data(), blocks, last_blocks);
  begin_late(words.data() + blocks + 1, blocks, last_blocks); // of the ties, of which no block takes a tile
  const cut<float> where{magnitude_of(200.0F), 0, ties, ~std::size_t{0}};
  spar::detail::launch(detail::divide_candidates<float, std::uint64_t>, blocks, detail::partition_tile::threads,
                       sizeof(detail::partition_tile::memory), nullptr,
                       detail::searched_values<float>{x.data(), n, candidates.data(), &count, n}, std::uint64_t{1},
                       positions.data(), &where, x.data(), begin, out_i.data(), out_v.data(), words.data());
  std::vector<std::uint64_t> kept;
  std::vector<float> kept_values, back(3 * some);
  std::uint64_t left = ties - before;
  for (std::size_t i = 0; i < some; ++i) {
    const bool tie = std::fabs(last[i]) == 200;
    if (std::fabs(last[i]) > 200 || (tie && left > 0 && left-- > 0))
      kept.push_back(begin + to + 3 * i), kept_values.push_back(last[i]);
    else
      back[3 * i] = last[i];
  }
  EXPECT_EQ(left, 0U);
  EXPECT_EQ(out_i.read(before, kept.size()), kept);
  EXPECT_EQ(out_v.read(before, kept.size()), kept_values);
  EXPECT_EQ(x.read(to, 3 * some), back);
}

/// More than 2^32 candidates, of which the last block has 256 in each round of all blocks.
TEST_F(beyond_32_bits, put_back) {
  on_host::machine::last_blocks = 1;
  using grid = detail::digit_grid;
  constexpr std::uint64_t room = (std::uint64_t{1} << 32) + 2 * grid::most * grid::threads, count = room + 1;
  constexpr std::uint64_t own = room - grid::threads, to = n - 3 * grid::threads;
  const sparse_array<float> candidates(room), x(n);
  const sparse_array<std::uint64_t> positions(room);
  std::vector<float> expected(3 * grid::threads);
  for (std::uint64_t i = 0; i < grid::threads; ++i) {
    positions.data()[own + i] = to + 3 * i;
    candidates.data()[own + i] = expected[3 * i] = static_cast<float>(i + 1);
  }
  spar::detail::launch(detail::put_back<float, std::uint64_t>, grid::blocks(room), grid::threads, 0, nullptr,
                       detail::searched_values<float>{x.data(), n, candidates.data(), &count, room}, std::uint64_t{1},
                       positions.data(), x.data());
  EXPECT_EQ(x.read(to, expected.size()), expected);
}

/// The last digit of the k-th largest magnitude, k above 2^32: the last block counts its values, and finds the digit
/// from the counts of all blocks.
TEST_F(beyond_32_bits, digit) {
  on_host::machine::last_blocks = 1;
  const std::uint64_t blocks = detail::digit_grid::blocks(n);
  const std::uint64_t stride = blocks * detail::digit_grid::threads, own = stride - detail::digit_grid::threads;
  const sparse_array<float> x(n);
  constexpr magnitude<float> digits = 0x3f800000, mask = 0xffffff00; // of zeros, the upper digits differ
  for (std::uint64_t i = 0; own + i * stride < n; i += 512)
    x.data()[own + i * stride] = std::bit_cast<float>(digits | 5);
  const std::uint64_t whole = (n - own + stride - 1) / stride, counted = (whole + 511) / 512;
  ASSERT_GT(own + (counted - 1) * 512 * stride, std::uint64_t{1} << 32);
  detail::digit_search<float> search{};
  search.digits = digits, search.mask = mask, search.above = before;
  search.finished = blocks - 1;
  search.histogram[9] = before, search.histogram[5] = before, search.histogram[3] = 1;
  cut<float> result;
  const std::uint64_t k = 3 * before + counted; // the last of those with the digit 5
  spar::detail::launch(detail::find_digit<float>, blocks, detail::digit_grid::threads,
                       sizeof(detail::digit_grid::memory), nullptr, detail::searched_values<float>{x.data(), n}, k, 0U,
                       &search, &result);
  EXPECT_EQ(result.threshold, digits | 5);
  EXPECT_EQ(result.count, k);
  EXPECT_EQ(result.ties, before + counted);
  EXPECT_EQ(result.equal, before + counted);
}

/// The output of the last tiles.
void expect_sum(const std::map<std::uint64_t, float>& sum, const sparse_array<std::uint64_t>& indices,
                const sparse_array<float>& entries, std::uint64_t count) {
  ASSERT_EQ(count, before + sum.size());
  std::uint64_t at = before;
  for (const auto& [index, value] : sum) {
    EXPECT_EQ(indices.data()[at], index);
    EXPECT_EQ(entries.data()[at++], value);
  }
}

TEST_F(beyond_32_bits, merge) {
  using tile = detail::merge_tile<float, std::uint64_t>;
  const long_stream left(base, 3, 1), right(base + 30, 2, 2);
  const sparse_array<std::uint64_t> out_i(2 * n), words(merge_words<float, std::uint64_t>(2 * n));
  const sparse_array<float> out_v(2 * n);
  begin_late(words.data(), tile::count(2 * n), last_blocks);
  std::uint64_t count = 0;
  spar::detail::launch(detail::merge<float, std::uint64_t, spar::sum>, tile::count(2 * n), tile::threads,
                       sizeof(tile::memory), nullptr, left.stream(), right.stream(), 0.5, out_i.data(), out_v.data(),
                       spar::sum{}, &count, words.data());
  std::map<std::uint64_t, float> expected;
  left.add_to(expected), right.add_to(expected);
  ASSERT_LT(expected.size(), 2 * some - 100);
  expect_sum(expected, out_i, out_v, count);
}

TEST_F(beyond_32_bits, merge_many) {
  using window = detail::merge_window_of<float>;
  const std::uint64_t windows = spar::detail::tiles_of(n, window::indices), late = base + n - 4 * some;
  const long_stream a(late, 4, 1), b(late + 30, 3, 2), c(late + 2 * some, 1, 3);
  const std::vector<device_coo<float, std::uint64_t>> parts{a.stream(), b.stream(), c.stream()};
  const sparse_array<std::uint64_t> out_i(n), words(merge_many_words<float>(parts.size(), n));
  const sparse_array<float> out_v(n);
  std::uint64_t* const bounds = words.data() + spar::detail::tiles::words(windows);
  const detail::merged_range range{base, base + n};
  spar::detail::launch(detail::find_windows<float, std::uint64_t, detail::merged_range>,
                       spar::detail::tiles_of((windows + 1) * parts.size(), window::threads), window::threads, 0,
                       nullptr, parts.data(), parts.size(), range, bounds);
  EXPECT_EQ(bounds[windows * parts.size()], n);
  EXPECT_EQ(bounds[(windows - 2) * parts.size()], first);
  begin_late(words.data(), windows, last_blocks);
  std::uint64_t count = 0, wrong = 0;
  spar::detail::launch(detail::merge_many<float, std::uint64_t, spar::sum, detail::merged_range>, windows,
                       window::threads, sizeof(window::memory), nullptr, parts.data(), parts.size(), range, bounds,
                       out_i.data(), out_v.data(), spar::sum{}, &count, &wrong, words.data());
  EXPECT_EQ(wrong, 0U);
  std::map<std::uint64_t, float> expected;
  a.add_to(expected), b.add_to(expected), c.add_to(expected);
  ASSERT_LT(expected.size(), 3 * some - 100);
  expect_sum(expected, out_i, out_v, count);
}

} // namespace
