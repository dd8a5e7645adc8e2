// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The kernels that encode and decode values, on the host, against the host's own codecs.
#include "kernel_test.hpp"

#include <spar/core/op.hpp>
#include <spar/cuda/kernel/qsgd.cuh>
#include <spar/cuda/kernel/short_floats.cuh>
#include <spar/storage/kernel/qsgd.hpp>
#include <spar/storage/kernel/short_floats.hpp>
#include <spar/storage/qsgd.hpp>
#include <spar/storage/short_float.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace {

using kernel_test::unaligned;
using kernel_test::vector;

/// Values of all magnitudes and, if `special`, infinities, NaN, zeros of both signs and denormal numbers.
template <class T>
vector<T> values(std::size_t n, std::uint64_t seed, bool special) {
  using limits = std::numeric_limits<T>;
  const vector<T> all{limits::infinity(),   -limits::infinity(), limits::quiet_NaN(), T(0), -T(0),
                      limits::denorm_min(), limits::max(),       limits::lowest()};
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0, 1);
  vector<T> x(n);
  for (T& v : x) {
    v = static_cast<T>(normal(random));
    if (special && random() % 7 == 0) v = all[random() % all.size()];
  }
  return x;
}

template <class T>
bool same_bits(const vector<T>& a, const vector<T>& b) {
  return std::ranges::equal(a, b, kernel_test::same_bits<T>);
}

/// Encodes and decodes values and bytes that begin `shift` values or bytes after an aligned address: where nothing is
/// aligned, a sanitizer finds loads and stores that need an alignment.
template <int Bits, class T>
void compare_qsgd(const vector<T>& x, std::size_t bucket, std::uint64_t position, std::size_t shift) {
  using codec = spar::kernel::qsgd_codec<Bits>;
  const std::size_t n = x.size(), bytes = codec::template encoded_bytes<T>(n, bucket);
  vector<T> shifted(shift, T(7));
  shifted.insert(shifted.end(), x.begin(), x.end());
  vector<std::byte> expected(bytes), got(shift + bytes + 1, std::byte{0x5a});
  codec::encode(x.data(), n, bucket, expected.data(), 3, 4, position);
  spar::kernel::start_qsgd_encode<Bits>(shifted.data() + shift, n, bucket, got.data() + shift, 3, 4, position, nullptr);
  kernel_test::finish();
  EXPECT_TRUE(shift == 0 || got[shift - 1] == std::byte{0x5a});
  EXPECT_EQ(got.back(), std::byte{0x5a});
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), got.data() + shift)) << n << " in buckets of " << bucket;
  vector<T> decoded(n, T(9)), again(shift + n, T(8));
  codec::decode(expected.data(), n, bucket, decoded.data());
  spar::kernel::start_qsgd_decode<Bits>(got.data() + shift, n, bucket, again.data() + shift, nullptr);
  kernel_test::finish();
  again.erase(again.begin(), again.begin() + static_cast<std::ptrdiff_t>(shift));
  EXPECT_TRUE(same_bits(decoded, again)) << n << " in buckets of " << bucket;
}

template <class T>
void compare_qsgd(std::size_t n, std::uint64_t seed, bool special) {
  for (const std::size_t bucket : {1U, 127U, 128U, 1024U, 5000U}) {
    for (const std::uint64_t position : {0U, 1'000'003U}) {
      if (bucket == 1 && n > 500) continue;
      const auto x = values<T>(n, seed, special);
      for (const std::size_t shift : {0U, 1U}) {
        compare_qsgd<2>(x, bucket, position, shift);
        compare_qsgd<4>(x, bucket, position, shift);
        compare_qsgd<8>(x, bucket, position, shift);
      }
    }
  }
}

TEST(device_qsgd, has_the_bytes_of_the_host_for_every_size) {
  for (const std::size_t n : {0U, 1U, 3U, 4U, 5U, 129U, 1023U, 1025U, 3000U}) compare_qsgd<float>(n, n, false);
}

TEST(device_qsgd, has_the_bytes_of_the_host_for_special_values_and_every_type) {
  compare_qsgd<float>(700, 1, true);
  compare_qsgd<double>(700, 2, true);
  compare_qsgd<double>(700, 3, false);
  vector<float> tiny(300, 1e-42F), zeros(300, -0.0F);
  tiny[7] = -3e-41F;
  compare_qsgd<8>(tiny, 100, 0, 0);
  compare_qsgd<4>(zeros, 100, 0, 0);
}

TEST(device_qsgd, decodes_any_bytes) {
  std::mt19937_64 random(4);
  vector<std::byte> bytes(spar::kernel::qsgd_codec<4>::encoded_bytes<float>(2000, 300));
  for (int trial = 0; trial < 20; ++trial) {
    for (std::byte& b : bytes) b = static_cast<std::byte>(random());
    vector<float> expected(2000), got(2000);
    spar::kernel::qsgd_codec<4>::decode(bytes.data(), 2000, 300, expected.data());
    spar::kernel::start_qsgd_decode<4>(bytes.data(), 2000, 300, got.data(), nullptr);
    kernel_test::finish();
    EXPECT_TRUE(same_bits(expected, got));
  }
}

TEST(device_qsgd, rejects_an_empty_bucket) {
  float x = 0;
  std::byte out{};
  EXPECT_THROW(spar::kernel::start_qsgd_encode<8>(&x, 1, 0, &out, 0, 0, 0, nullptr), spar::invalid_argument);
}

template <class Code, class T>
void compare_short(std::size_t n, std::uint64_t seed, bool special) {
  auto x = values<T>(n, seed, special);
  std::mt19937_64 random(seed);
  if constexpr (std::is_same_v<T, float>) { // any bits
    for (std::size_t i = 0; i < n; i += 3) x[i] = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
  }
  vector<std::uint16_t> expected(n);
  for (std::size_t i = 0; i < n; ++i) expected[i] = spar::kernel::short_of<Code>(static_cast<float>(x[i]));
  unaligned<T> in(x), again(n, T(8));
  unaligned<std::uint16_t> got(n, 7);
  vector<std::uint32_t> refused(1);
  spar::kernel::start_encode_short<Code>(in.data(), n, got.data(), nullptr, refused.data());
  kernel_test::finish();
  EXPECT_EQ(got.copy(), expected) << n;
  EXPECT_EQ(refused[0] == 0, spar::storage::short_float<Code>::can_encode(std::span<const T>(x.data(), n)));
  vector<T> decoded(n);
  for (std::size_t i = 0; i < n; ++i) decoded[i] = static_cast<T>(spar::kernel::float_of<Code>(expected[i]));
  spar::kernel::start_decode_short<Code>(got.data(), n, again.data(), nullptr);
  kernel_test::finish();
  EXPECT_TRUE(same_bits(decoded, again.copy())) << n;
  spar::kernel::start_reduce_short<Code>(got.data(), n, again.data(), spar::sum{}, nullptr);
  kernel_test::finish();
  for (T& value : decoded) value = spar::sum{}(value, value);
  EXPECT_TRUE(same_bits(decoded, again.copy())) << n;
}

TEST(device_short_floats, have_the_bits_of_the_host) {
  for (const std::size_t n : {0U, 1U, 255U, 2047U, 2048U, 2049U, 10'000U}) {
    compare_short<spar::kernel::bfloat16_code, float>(n, n, true);
    compare_short<spar::kernel::half_code, float>(n, n + 1, true);
    compare_short<spar::kernel::half_code, double>(n, n + 2, false);
  }
}

} // namespace
