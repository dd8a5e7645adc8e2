// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernels on vectors of more than 2^32 values: only the last blocks run, on the last values. The other values exist
// only as addresses.
#include "on_host.hpp"

#include <spar/cuda/kernel/dense.cuh>
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
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

namespace {

using namespace spar::kernel;

constexpr std::uint64_t n = (std::uint64_t{1} << 33) + 12345;
constexpr std::uint64_t some = 700, first = n - some; // the values that the tests look at

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
  start_finish(b.data(), n, 4, spar::average{}, nullptr);
  std::vector<float> expected(some);
  for (std::size_t i = 0; i < some; ++i) expected[i] = (left[i] + right[i]) / 4;
  EXPECT_EQ(b.read(first, some), expected);
}

TEST_F(beyond_32_bits, short_floats) {
  const sparse_array<float> x(n);
  const sparse_array<std::uint16_t> code(n);
  x.write(first, values(1));
  start_encode_short<bfloat16_code>(x.data(), n, code.data(), nullptr);
  start_decode_short<bfloat16_code>(code.data(), n, x.data(), nullptr);
  std::vector<float> expected = values(1);
  for (float& v : expected) v = bfloat16_code::decode(bfloat16_code::encode(v));
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

/// The last tiles, after more than 2^32 entries of the tiles before.
TEST_F(beyond_32_bits, take) {
  constexpr std::uint64_t before = (std::uint64_t{1} << 32) + 99, begin = 1000;
  const std::uint64_t blocks = detail::take_tile::count(n);
  const sparse_array<float> x(n), out_v(n);
  const sparse_array<std::uint64_t> out_i(n);
  const std::vector<float> last = values(1);
  x.write(first, last);
  std::vector<std::uint64_t> words(take_words(n));
  const std::uint64_t begun = blocks - last_blocks;
  words[0] = begun;                                                        // the number of tiles that blocks have taken
  for (std::uint64_t lane = 1; lane < 32; ++lane) words[begun - lane] = 1; // tiles that count their own entries: none
  words[begun] = before << 2 | 2; // the tile before counts the entries through this tile
  std::uint64_t count = 0;
  const magnitude<float> threshold = magnitude_of(200.0F);
  spar::detail::launch(detail::take<float, std::uint64_t, magnitude<float>>, blocks, detail::take_tile::threads,
                       sizeof(detail::take_tile::memory), nullptr, static_cast<const float*>(nullptr), x.data(), n,
                       threshold, begin, out_i.data(), out_v.data(), n, &count, words.data());
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
  constexpr std::uint64_t before = (std::uint64_t{1} << 32) + 99, ties = before + 20, begin = 1000;
  const std::uint64_t blocks = detail::take_tile::count(n), begun = blocks - last_blocks;
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
  spar::detail::launch(detail::partition<float, std::uint64_t, by_cut<float>>, blocks, detail::take_tile::threads,
                       sizeof(detail::partition_memory), nullptr,
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

} // namespace
