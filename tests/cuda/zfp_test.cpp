// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The kernels for zfp, on the host, against libzfp.
#include "kernel_test.hpp"
#include "support/libzfp.hpp"

#include <spar/cuda/kernel/zfp.cuh>

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace {

using kernel_test::vector;

template <class T>
vector<std::uint32_t> by_libzfp(const vector<T>& x, unsigned bits) {
  const auto words = spar_test::encoded_by_libzfp(x.data(), x.size(), bits);
  vector<std::uint32_t> out(2 * words.size());
  if (!out.empty()) std::memcpy(out.data(), words.data(), 8 * words.size());
  return out;
}
template <class T>
vector<T> decoded_by_libzfp(const vector<std::uint32_t>& words, std::size_t n, unsigned bits) {
  std::vector<std::uint64_t> in(words.size() / 2);
  if (!in.empty()) std::memcpy(in.data(), words.data(), 8 * in.size());
  const auto x = spar_test::decoded_by_libzfp<T>(in, n, bits);
  return vector<T>(x.begin(), x.end());
}

template <class T>
bool same_bits(const vector<T>& a, const vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// Compares the kernels for values that begin `shift` values after an aligned address.
template <class T>
void compare(const vector<T>& x, unsigned bits, std::size_t shift) {
  SCOPED_TRACE(testing::Message() << x.size() << " values in blocks of " << bits << " bits, shifted by " << shift);
  const auto expected = by_libzfp(x, bits);
  ASSERT_EQ(spar::kernel::zfp_words(x.size(), bits), expected.size());
  vector<T> shifted(shift);
  shifted.insert(shifted.end(), x.begin(), x.end());
  vector<std::uint32_t> got(expected.size(), 0xdeadbeef);
  spar::kernel::start_zfp_encode(shifted.data() + shift, x.size(), bits, got.data(), nullptr);
  kernel_test::finish();
  EXPECT_EQ(got, expected);
  vector<T> decoded(shift + x.size(), T(7));
  spar::kernel::start_zfp_decode(expected.data(), x.size(), bits, decoded.data() + shift, nullptr);
  kernel_test::finish();
  decoded.erase(decoded.begin(), decoded.begin() + static_cast<std::ptrdiff_t>(shift));
  EXPECT_TRUE(same_bits(decoded, decoded_by_libzfp<T>(expected, x.size(), bits)));
}
template <class T>
void compare(const vector<T>& x, unsigned bits) {
  compare(x, bits, 0);
  compare(x, bits, 1);
}

/// Values whose magnitudes differ by up to 2^range, some of them zeros of either sign.
template <class T>
vector<T> values(std::size_t n, int range, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> mantissa(-1, 1), exponent(-range, range);
  vector<T> x(n);
  for (T& v : x)
    v = random() % 9 == 0 ? (random() % 2 == 0 ? T(0) : -T(0))
                          : static_cast<T>(mantissa(random) * std::exp2(exponent(random)));
  return x;
}

TEST(device_zfp, has_the_bits_of_libzfp_for_every_size) {
  for (const std::size_t n : {0U, 1U, 2U, 3U, 4U, 5U, 127U, 128U, 129U, 255U, 257U, 511U, 513U, 1023U}) {
    for (const unsigned bits : {16U, 32U, 33U, 128U}) compare(values<float>(n, 4, n + bits), bits);
  }
}

TEST(device_zfp, has_the_bits_of_libzfp_for_every_rate) {
  for (unsigned bits = 16; bits <= 128; ++bits) {
    compare(values<float>(300, 10, bits), bits);
    compare(values<double>(300, 20, bits), bits);
  }
}

TEST(device_zfp, has_the_bits_of_libzfp_for_every_magnitude) {
  for (int range : {0, 1, 60, 110, 124}) compare(values<float>(3000, range, static_cast<std::uint64_t>(range)), 40);
  for (int range : {0, 300, 950, 1020}) compare(values<double>(3000, range, static_cast<std::uint64_t>(range)), 50);
  vector<float> tiny(64, 1e-42F), edge;
  for (int e = -105; e <= -90; ++e) edge.insert(edge.end(), {std::ldexp(1.0F, e), -std::ldexp(0.99F, e), 0, 0});
  compare(tiny, 32);
  compare(edge, 32);
  vector<float> largest(64, 0x1p124F);
  largest[5] = -0x1.fffffep124F;
  compare(largest, 64);
}

TEST(device_zfp, decodes_any_bits) {
  std::mt19937_64 random(5);
  for (unsigned bits = 16; bits <= 128; ++bits) {
    vector<std::uint32_t> words(spar::kernel::zfp_words(1000, bits));
    // Half of them with few ones, so that codes of one value after many zeros end at the limit.
    for (auto& w : words) {
      w = static_cast<std::uint32_t>(random());
      if (random() % 2 == 0) w = (w & static_cast<std::uint32_t>(random() & random())) | 1;
    }
    vector<float> x(1000);
    vector<double> y(1000);
    spar::kernel::start_zfp_decode(words.data(), 1000, bits, x.data(), nullptr);
    spar::kernel::start_zfp_decode(words.data(), 1000, bits, y.data(), nullptr);
    kernel_test::finish();
    EXPECT_TRUE(same_bits(x, decoded_by_libzfp<float>(words, 1000, bits))) << bits;
    EXPECT_TRUE(same_bits(y, decoded_by_libzfp<double>(words, 1000, bits))) << bits;
  }
}

/// Blocks whose values underflow: libzfp decodes fewer planes of them, which decide on the signs of zeros.
TEST(device_zfp, decodes_blocks_below_the_smallest_double) {
  std::mt19937_64 random(6);
  for (unsigned bits = 64; bits <= 128; ++bits) {
    vector<std::uint32_t> words(spar::kernel::zfp_words(1000, bits));
    for (auto& w : words) w = static_cast<std::uint32_t>(random() & random() & random());
    for (std::size_t block = 0; block < 250; ++block) { // a header with an exponent below 16
      for (std::size_t i = 0; i < 12; ++i) {
        const std::size_t bit = block * bits + i;
        const bool is_set = i == 0 || (i < 5 && random() % 2 == 0);
        words[bit / 32] = (words[bit / 32] & ~(1U << bit % 32)) | static_cast<std::uint32_t>(is_set) << bit % 32;
      }
    }
    vector<double> y(1000);
    spar::kernel::start_zfp_decode(words.data(), 1000, bits, y.data(), nullptr);
    kernel_test::finish();
    EXPECT_TRUE(same_bits(y, decoded_by_libzfp<double>(words, 1000, bits))) << bits;
  }
}

} // namespace
