// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// QSGD buckets: size, error, expectation, reproducibility, special values, and arbitrary bytes.
#include <spar/storage/kernel/qsgd.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace {

template <int Bits, class T>
struct model {
  static constexpr int bits = Bits;
  using codec = spar::kernel::qsgd_codec<Bits>;
  using value = T;
};

template <class Model>
class kernel_qsgd : public ::testing::Test {
 protected:
  using codec = typename Model::codec;
  using value_type = typename Model::value;
  using limits = std::numeric_limits<value_type>;
  static constexpr double levels = (1 << (Model::bits - 1)) - 1;
  static constexpr bool is_half = sizeof(value_type) == 2;

  static value_type cast(double x) { return static_cast<value_type>(x); }
  static value_type infinity() { return cast(std::numeric_limits<double>::infinity()); }
  static value_type nan() { return cast(std::numeric_limits<double>::quiet_NaN()); }

  static std::vector<std::byte> encode(const std::vector<value_type>& x, std::size_t bucket, std::uint64_t call = 0,
                                       std::uint64_t position = 0, std::uint64_t seed = 42) {
    const std::size_t size = codec::template encoded_bytes<value_type>(x.size(), bucket);
    std::vector<std::byte> bytes(size + 8, std::byte{0xa5});
    codec::encode(x.data(), x.size(), bucket, bytes.data(), seed, call, position);
    for (std::size_t e = size; e < bytes.size(); ++e)
      EXPECT_EQ(bytes[e], std::byte{0xa5}) << "the encoder wrote beyond the size";
    bytes.resize(size);
    return bytes;
  }

  static std::vector<value_type> decode(const std::vector<std::byte>& bytes, std::size_t count, std::size_t bucket) {
    std::vector<value_type> x(count + 1, value_type(77));
    codec::decode(bytes.data(), count, bucket, x.data());
    EXPECT_EQ(x[count], value_type(77)) << "the decoder wrote beyond the count";
    x.pop_back();
    return x;
  }

  static std::vector<value_type> around(const std::vector<value_type>& x, std::size_t bucket, std::uint64_t call = 0) {
    return decode(encode(x, bucket, call), x.size(), bucket);
  }

  static std::vector<value_type> gaussian(std::size_t count, double scale = 1, unsigned seed = 1) {
    std::mt19937_64 random(seed);
    std::normal_distribution<double> normal(0, scale);
    std::vector<value_type> x(count);
    for (auto& v : x) v = cast(normal(random));
    return x;
  }

  static void expect_same(const std::vector<value_type>& a, const std::vector<value_type>& b) {
    ASSERT_EQ(a.size(), b.size());
    EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(value_type)), 0);
  }
};

using models = ::testing::Types<model<2, float>, model<4, float>, model<8, float>, model<2, double>, model<4, double>,
                                model<8, double>
#ifdef SPAR_HAS_HALF
                                ,
                                model<2, spar::half>, model<4, spar::half>, model<8, spar::half>
#endif
                                >;
TYPED_TEST_SUITE(kernel_qsgd, models);

TYPED_TEST(kernel_qsgd, byte_count) {
  for (const std::size_t bucket : {1u, 2u, 3u, 4u, 7u, 64u, 1000u, 1024u}) {
    for (const std::size_t count : {0u, 1u, 2u, 3u, 5u, 63u, 64u, 65u, 1024u, 1025u, 4100u}) {
      std::size_t expected = 0;
      for (std::size_t first = 0; first < count; first += bucket) {
        const std::size_t length = std::min(bucket, count - first);
        expected += sizeof(typename TypeParam::value) + (length * TypeParam::bits + 7) / 8;
      }
      EXPECT_EQ(TypeParam::codec::template encoded_bytes<typename TypeParam::value>(count, bucket), expected)
          << count << " entries in buckets of " << bucket;
    }
  }
}

TYPED_TEST(kernel_qsgd, a_bucket_of_nothing_is_refused) {
  typename TypeParam::value x{};
  std::byte bytes[64] = {};
  EXPECT_THROW(TypeParam::codec::template encoded_bytes<typename TypeParam::value>(1, 0), spar::invalid_argument);
  EXPECT_THROW(TypeParam::codec::encode(&x, 1, 0, bytes, 0, 0, 0), spar::invalid_argument);
  EXPECT_THROW(TypeParam::codec::decode(bytes, 1, 0, &x), spar::invalid_argument);
}

TYPED_TEST(kernel_qsgd, error_is_below_one_level_of_the_bucket) {
  for (const std::size_t bucket : {1u, 3u, 64u, 100u, 1024u}) {
    for (const double scale : {1.0, 1e-3, 1e3}) {
      const auto x = this->gaussian(3000, scale);
      const auto y = this->around(x, bucket);
      for (std::size_t e = 0; e < x.size(); ++e) {
        double top = 0;
        for (std::size_t f = e / bucket * bucket; f < std::min(x.size(), (e / bucket + 1) * bucket); ++f)
          top = std::max(top, std::abs(static_cast<double>(x[f])));
        const double slack = this->is_half ? top / 1000 : top * 1e-6;
        ASSERT_LE(std::abs(static_cast<double>(y[e]) - static_cast<double>(x[e])), top / this->levels + slack) << e;
        if (std::abs(static_cast<double>(x[e])) == top) {
          ASSERT_EQ(y[e], x[e]) << "the largest entry must be exact";
        }
      }
    }
  }
}

TYPED_TEST(kernel_qsgd, unbiased_within_four_sigma) {
  constexpr std::size_t count = 130; // two whole blocks and a remainder
  constexpr std::uint64_t calls = 20'000;
  auto x = this->gaussian(count);
  x[5] = this->cast(1e-3);
  x[6] = -x[5];
  std::vector<double> sum(count), squares(count);
  for (std::uint64_t call = 0; call < calls; ++call) {
    const auto y = this->around(x, count, call);
    for (std::size_t e = 0; e < count; ++e) {
      const double error = static_cast<double>(y[e]) - static_cast<double>(x[e]);
      sum[e] += error;
      squares[e] += error * error;
    }
  }
  double top = 0, total = 0, variance = 0;
  for (const auto v : x) top = std::max(top, std::abs(static_cast<double>(v)));
  const double rounding = top * (this->is_half ? 1e-3 : 1e-6);
  for (std::size_t e = 0; e < count; ++e) {
    const double sigma = std::sqrt(squares[e] / calls / calls);
    EXPECT_LE(std::abs(sum[e] / calls), 4 * sigma + rounding) << "entry " << e << " = " << static_cast<double>(x[e]);
    total += sum[e] / calls;
    variance += sigma * sigma;
  }
  EXPECT_LE(std::abs(total), 4 * std::sqrt(variance) + count * rounding);
}

TYPED_TEST(kernel_qsgd, neighbours_and_calls_round_independently) {
  // Every entry except the scale is half a level, so it rounds up or down with equal probability.
  constexpr std::size_t count = 1 << 14;
  std::vector<typename TypeParam::value> x(count, this->cast(0.5 / this->levels));
  x[0] = this->cast(1);
  const auto y = this->around(x, count, 1), z = this->around(x, count, 2);
  double up = 0, neighbours = 0, calls = 0, pairs = 0;
  for (std::size_t e = 1; e + 2 < count; ++e) {
    const auto side = [](auto v) { return static_cast<double>(v) > 0 ? 1.0 : -1.0; };
    up += side(y[e]);
    neighbours += side(y[e]) * side(y[e + 1]);
    pairs += side(y[e]) * side(y[e + 2]);
    calls += side(y[e]) * side(z[e]);
  }
  const double bound = 4 * std::sqrt(static_cast<double>(count)) + (this->is_half ? count / 500.0 : 0);
  EXPECT_LE(std::abs(up), bound);
  EXPECT_LE(std::abs(neighbours), bound);
  EXPECT_LE(std::abs(pairs), bound);
  EXPECT_LE(std::abs(calls), bound);
}

TYPED_TEST(kernel_qsgd, reproducible) {
  const auto x = this->gaussian(2000);
  EXPECT_EQ(this->encode(x, 512, 3, 7), this->encode(x, 512, 3, 7));
  EXPECT_NE(this->encode(x, 512, 3, 7), this->encode(x, 512, 4, 7));
  EXPECT_NE(this->encode(x, 512, 3, 7), this->encode(x, 512, 3, 8));
  EXPECT_NE(this->encode(x, 512, 3, 7, 1), this->encode(x, 512, 3, 7, 2));
}

TYPED_TEST(kernel_qsgd, blocking_does_not_matter) {
  constexpr std::size_t bucket = 65; // odd, so that blocks begin at odd positions
  const auto x = this->gaussian(bucket * 12);
  const auto whole = this->encode(x, bucket, 9, 1001);
  for (const std::size_t parts : {2u, 3u, 4u, 12u}) {
    std::vector<std::byte> joined;
    for (std::size_t p = 0; p < parts; ++p) {
      const std::size_t length = x.size() / parts, first = p * length;
      const std::vector<typename TypeParam::value> part(x.begin() + static_cast<std::ptrdiff_t>(first),
                                                        x.begin() + static_cast<std::ptrdiff_t>(first + length));
      const auto bytes = this->encode(part, bucket, 9, 1001 + first);
      joined.insert(joined.end(), bytes.begin(), bytes.end());
    }
    EXPECT_EQ(joined, whole) << parts << " parts";
  }
}

TYPED_TEST(kernel_qsgd, rounding_depends_on_the_position_not_on_the_place_in_the_bucket) {
  // The scale is the same everywhere, so other bucket boundaries must give the same levels.
  std::vector<typename TypeParam::value> x = this->gaussian(960, 0.1);
  for (std::size_t e = 0; e < x.size(); e += 16) x[e] = this->cast(1);
  for (auto& v : x)
    if (std::abs(static_cast<double>(v)) > 1) v = this->cast(1);
  this->expect_same(this->around(x, 960), this->around(x, 48));
  this->expect_same(this->around(x, 960), this->around(x, 16));
}

TYPED_TEST(kernel_qsgd, zeros_are_exact) {
  const std::vector<typename TypeParam::value> zeros(200, this->cast(0)), minus(200, this->cast(-0.0));
  this->expect_same(this->around(zeros, 64), zeros);
  this->expect_same(this->around(minus, 64), zeros);
  auto x = this->gaussian(200);
  for (std::size_t e = 0; e < x.size(); e += 3) x[e] = this->cast(0);
  const auto y = this->around(x, 64);
  for (std::size_t e = 0; e < x.size(); e += 3) ASSERT_EQ(static_cast<double>(y[e]), 0.0) << e;
}

TYPED_TEST(kernel_qsgd, nan_stays_in_its_place_and_disturbs_nothing) {
  for (const std::size_t count : {1u, 3u, 64u, 200u}) {
    const auto clean = this->gaussian(count);
    for (std::size_t place = 0; place < count; place += 1 + count / 20) {
      auto x = clean;
      x[place] = place % 2 == 0 ? this->nan() : -this->nan();
      auto zeroed = clean;
      zeroed[place] = this->cast(0);
      const auto y = this->around(x, 64), expected = this->around(zeroed, 64);
      for (std::size_t e = 0; e < count; ++e) {
        if (e == place) {
          ASSERT_TRUE(y[e] != y[e]);
        } else {
          ASSERT_EQ(static_cast<double>(y[e]), static_cast<double>(expected[e])) << e;
        }
      }
    }
  }
  const std::vector<typename TypeParam::value> all(100, this->nan());
  for (const auto v : this->around(all, 64)) ASSERT_TRUE(v != v);
}

TYPED_TEST(kernel_qsgd, infinities_stay_and_finite_entries_of_their_bucket_become_zero) {
  auto x = this->gaussian(192);
  x[70] = this->infinity();
  x[71] = -this->infinity();
  x[72] = this->nan();
  const auto y = this->around(x, 64), clean = this->around(this->gaussian(192), 64);
  for (std::size_t e = 0; e < x.size(); ++e) {
    if (e == 70 || e == 71) {
      ASSERT_EQ(y[e], x[e]);
    } else if (e == 72) {
      ASSERT_TRUE(y[e] != y[e]);
    } else if (e / 64 == 1) {
      ASSERT_EQ(static_cast<double>(y[e]), 0.0) << e;
    } else {
      ASSERT_EQ(y[e], clean[e]) << e;
    }
  }
}

TYPED_TEST(kernel_qsgd, extreme_scales) {
  using value = typename TypeParam::value;
  std::vector<double> scales = {1, 3e-5};
  if constexpr (sizeof(value) == 2) {
    scales.insert(scales.end(), {6e-8, 65504.0});
  } else {
    scales.insert(scales.end(), {static_cast<double>(std::numeric_limits<value>::denorm_min()),
                                 static_cast<double>(std::numeric_limits<value>::min()),
                                 static_cast<double>(std::numeric_limits<value>::max()), 1e-30, 1e-38, 1e-18, 1e30});
  }
  for (const double scale : scales) {
    std::vector<value> x(100);
    for (std::size_t e = 0; e < x.size(); ++e)
      x[e] = this->cast(scale * (static_cast<double>(e % 50) / 49) * (e % 3 == 0 ? -1 : 1));
    const double top = std::abs(static_cast<double>(x[49]));
    const auto y = this->around(x, 100);
    EXPECT_EQ(y[49], x[49]) << scale;
    const double quantum = sizeof(value) == 2 ? 6e-8 : static_cast<double>(std::numeric_limits<value>::denorm_min());
    for (std::size_t e = 0; e < x.size(); ++e)
      ASSERT_LE(std::abs(static_cast<double>(y[e]) / 2 - static_cast<double>(x[e]) / 2),
                top / 2 / this->levels * 1.001 + top / 2000 + quantum)
          << scale << ", entry " << e;
  }
}

TYPED_TEST(kernel_qsgd, largest_entries_never_reach_the_next_level) {
  // |x| / scale * s may round to a little above s; about once in 10^5 draws the level would then overflow to the code
  // of NaN.
  for (const double scale : {1.1, 1.3, 1.7, 0.37, 5.9, 1.0 / 3}) {
    std::vector<typename TypeParam::value> x(1 << 17, this->cast(scale));
    for (std::size_t e = 0; e < x.size(); e += 2) x[e] = -x[e];
    this->expect_same(this->around(x, 1024), x);
  }
}

TYPED_TEST(kernel_qsgd, any_bytes_decode) {
  using value = typename TypeParam::value;
  std::mt19937_64 random(4);
  for (const double scale : {0.0, 1.0, -2.0, static_cast<double>(this->infinity()), static_cast<double>(this->nan())}) {
    // One bucket that contains every byte value.
    constexpr std::size_t count = 256 * 8 / TypeParam::bits;
    std::vector<std::byte> bytes(sizeof(value) + 256);
    const value stored = this->cast(scale);
    std::memcpy(bytes.data(), &stored, sizeof(value));
    for (unsigned b = 0; b < 256; ++b) bytes[sizeof(value) + b] = static_cast<std::byte>(b);
    const auto y = this->decode(bytes, count, count);
    for (std::size_t e = 0; e < count; ++e) {
      const unsigned byte = static_cast<unsigned>(bytes[sizeof(value) + e * TypeParam::bits / 8]);
      const unsigned code = (byte >> (e * TypeParam::bits % 8)) & ((1u << TypeParam::bits) - 1);
      const unsigned special = 1u << (TypeParam::bits - 1);
      const int level = static_cast<int>(code) - (code >= special ? 1 << TypeParam::bits : 0);
      if (code == special || (scale != scale && level != 0)) {
        ASSERT_TRUE(y[e] != y[e]) << "code " << code;
      } else if (level == 0) {
        ASSERT_EQ(static_cast<double>(y[e]), 0.0) << "code " << code;
      } else {
        const double expected = scale * level / this->levels;
        const double slack = std::abs(scale) < 4 ? (this->is_half ? 2e-3 : 1e-6) : 0;
        ASSERT_TRUE(static_cast<double>(y[e]) == expected || std::abs(static_cast<double>(y[e]) - expected) <= slack)
            << "code " << code;
      }
    }
  }
  for (int trial = 0; trial < 200; ++trial) {
    const std::size_t count = random() % 300, bucket = 1 + random() % 100;
    std::vector<std::byte> bytes(TypeParam::codec::template encoded_bytes<value>(count, bucket));
    for (auto& b : bytes) b = static_cast<std::byte>(random());
    EXPECT_EQ(this->decode(bytes, count, bucket).size(), count);
  }
}

TYPED_TEST(kernel_qsgd, has_the_same_bytes_with_and_without_avx2) {
  using value = typename TypeParam::value;
  using coder = typename TypeParam::codec;
  if (!spar::kernel::detail::has_avx2()) GTEST_SKIP() << "the processor has no AVX2";
  std::mt19937_64 random(9);
  const double huge = static_cast<double>(std::numeric_limits<value>::max());
  const double scales[] = {1, 1e-3, 0, huge / 8, static_cast<double>(std::numeric_limits<value>::denorm_min()) * 100};
  for (int trial = 0; trial < 400; ++trial) {
    std::vector<value> x = this->gaussian(random() % 1500, scales[random() % 5], static_cast<unsigned>(trial));
    if (trial % 3 == 0 && !x.empty()) {
      const value special[] = {this->nan(), this->infinity(), -this->infinity(), this->cast(huge), this->cast(-0.0)};
      for (int i = 0; i < 3; ++i) x[random() % x.size()] = special[random() % 5];
    }
    const std::size_t bucket = trial % 2 == 0 ? 1024 : 1 + random() % 400;
    const std::uint64_t call = random(), position = random();
    std::vector<std::byte> bytes[2];
    for (const bool by_avx2 : {false, true}) {
      bytes[by_avx2].resize(coder::template encoded_bytes<value>(x.size(), bucket));
      coder::encode(x.data(), x.size(), bucket, bytes[by_avx2].data(), 5, call, position, by_avx2);
    }
    ASSERT_EQ(bytes[0], bytes[1]) << x.size() << " values in buckets of " << bucket << " from position " << position;
  }
}

TEST(kernel_qsgd_format, bytes_of_a_known_bucket) {
  // Scale 7 and exact levels, so that rounding does not matter: 7 -7 1 -1 0 | NaN has code 8.
  const float x[] = {7, -7, 1, -1, 0, std::numeric_limits<float>::quiet_NaN(), 3};
  std::byte bytes[8];
  ASSERT_EQ(spar::kernel::qsgd_codec<4>::encoded_bytes<float>(7, 1024), 8u);
  spar::kernel::qsgd_codec<4>::encode(x, 7, 1024, bytes, 1, 2, 3);
  float scale = 0;
  std::memcpy(&scale, bytes, 4);
  EXPECT_EQ(scale, 7.0f);
  EXPECT_EQ(bytes[4], std::byte{0x97});
  EXPECT_EQ(bytes[5], std::byte{0xf1});
  EXPECT_EQ(bytes[6], std::byte{0x80});
  EXPECT_EQ(bytes[7], std::byte{0x03});
}

} // namespace
