// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The bytes and values of `storage::mx`, against the OCP specification computed with exact doubles and a search among
// all elements.
#include <spar/storage/mx.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace {

using spar::storage::e2m1;
using spar::storage::e4m3;
using spar::storage::e5m2;
using spar::storage::mx;

constexpr double infinity = std::numeric_limits<double>::infinity();

/// The formats of the elements, as the tables of the specification give them.
struct format {
  unsigned bits, mantissa;
  int bias;
  unsigned greatest; // the code of the greatest number
  int exponent;      // of the greatest number

  /// The value of an element, in the sense of the specification.
  [[nodiscard]] double value(unsigned code) const {
    const unsigned sign = code >> (bits - 1) & 1, rest = code & ((1U << (bits - 1)) - 1);
    const unsigned exponent_bits = rest >> mantissa, mantissa_bits = rest & ((1U << mantissa) - 1);
    double magnitude = 0;
    if (rest > greatest)
      magnitude = bits == 8 && mantissa == 2 && mantissa_bits == 0 ? infinity : std::nan("");
    else if (exponent_bits == 0)
      magnitude = std::ldexp(mantissa_bits, 1 - bias - static_cast<int>(mantissa));
    else
      magnitude = std::ldexp(mantissa_bits + (1U << mantissa),
                             static_cast<int>(exponent_bits) - bias - static_cast<int>(mantissa));
    return sign != 0 ? -magnitude : magnitude;
  }
  /// The values of the codes from 0 to `greatest`, which ascend.
  [[nodiscard]] std::vector<double> values() const {
    std::vector<double> all(greatest + 1);
    for (unsigned code = 0; code <= greatest; ++code) all[code] = value(code);
    return all;
  }
  /// The code of the nearest element; of two, the one whose last bit is 0. Larger values saturate.
  [[nodiscard]] unsigned nearest(double scaled, const std::vector<double>& all) const {
    const double magnitude = std::abs(scaled);
    auto best = static_cast<unsigned>(std::lower_bound(all.begin(), all.end(), magnitude) - all.begin());
    if (best > greatest) {
      best = greatest;
    } else if (best > 0) {
      const double down = magnitude - all[best - 1], up = all[best] - magnitude;
      if (down < up || (down == up && best % 2 == 1)) --best;
    }
    return best | (std::signbit(scaled) ? 1U << (bits - 1) : 0U);
  }
};

template <class Element>
format format_of() {
  if (std::is_same_v<Element, e4m3>) return {8, 3, 7, 0x7e, 8};
  if (std::is_same_v<Element, e5m2>) return {8, 2, 15, 0x7b, 15};
  return {4, 1, 1, 7, 2};
}

/// The encoding by the specification. Scale: the largest power of two that is not above the largest magnitude, divided
/// by the largest power of two of the elements.
template <class T>
std::vector<std::uint8_t> expected_bytes(const format& f, const std::vector<T>& x) {
  std::vector<std::uint8_t> bytes;
  const std::vector<double> elements = f.values();
  for (std::size_t first = 0; first < x.size(); first += 32) {
    const std::size_t count = std::min<std::size_t>(32, x.size() - first);
    double largest = 0;
    bool finite = true;
    for (std::size_t e = first; e < first + count; ++e) {
      finite = finite && std::isfinite(static_cast<double>(x[e]));
      largest = std::max(largest, std::abs(static_cast<double>(x[e])));
    }
    const int exponent = finite && largest > 0 ? std::max(std::ilogb(largest) - f.exponent, -127) : -127;
    bytes.push_back(finite ? static_cast<std::uint8_t>(exponent + 127) : std::uint8_t{255});
    std::vector<unsigned> codes(32);
    for (std::size_t e = 0; e < count; ++e)
      codes[e] = finite ? f.nearest(std::ldexp(static_cast<double>(x[first + e]), -exponent), elements) : 0;
    for (std::size_t e = 0; e < count; e += 8 / f.bits)
      bytes.push_back(static_cast<std::uint8_t>(f.bits == 8 ? codes[e] : codes[e] | codes[e + 1] << 4));
  }
  return bytes;
}

template <class Codec, class T>
std::vector<std::uint8_t> encoded(const Codec& codec, const std::vector<T>& x) {
  std::vector<std::uint8_t> bytes(codec.template encoded_bytes<T>(x.size()));
  codec.encode(std::span<const T>(x), std::as_writable_bytes(std::span(bytes)), {});
  return bytes;
}
template <class T, class Codec>
std::vector<T> decoded(const Codec& codec, const std::vector<std::uint8_t>& bytes, std::size_t count) {
  std::vector<T> x(count);
  codec.decode(std::as_bytes(std::span(bytes)), std::span<T>(x));
  return x;
}

template <class Element>
struct storage_mx : testing::Test {};
using all_elements = testing::Types<e4m3, e5m2, e2m1>;
TYPED_TEST_SUITE(storage_mx, all_elements);

TYPED_TEST(storage_mx, sizes_are_a_scale_for_each_32_values) {
  const mx<TypeParam> codec;
  const auto size = [&](std::size_t n) { return codec.template encoded_bytes<float>(n); };
  const unsigned bits = format_of<TypeParam>().bits;
  EXPECT_EQ(size(0), 0U);
  EXPECT_EQ(size(1), 2U);
  EXPECT_EQ(size(3), bits == 8 ? 4U : 3U);
  EXPECT_EQ(size(32), 1 + 4 * bits);
  EXPECT_EQ(size(33), 1 + 4 * bits + 2);
  EXPECT_EQ(size(3200), 100 + 400 * bits);
}

TYPED_TEST(storage_mx, has_the_same_bits_with_and_without_avx2) {
  if (!spar::kernel::detail::has_avx2()) GTEST_SKIP() << "the processor has no AVX2";
  std::mt19937_64 random(6);
  const std::uint32_t special[] = {0x7f800000, 0xff800000, 0x7fc00001, 0x7f800001, 1, 0x80000000, 0x7f7fffff};
  for (int trial = 0; trial < 3000; ++trial) {
    std::vector<float> x(random() % 300);
    const auto exponent = static_cast<std::uint32_t>(random() % 254);
    for (float& v : x) {
      const std::uint32_t near = exponent - std::min(exponent, static_cast<std::uint32_t>(random() % 24));
      v = std::bit_cast<float>((static_cast<std::uint32_t>(random()) & 0x807fffffU) | near << 23);
      if (trial % 3 == 0 && random() % 40 == 0) v = std::bit_cast<float>(special[random() % std::size(special)]);
    }
    std::vector<std::uint8_t> codes[2];
    std::vector<float> y[2];
    for (const bool by_avx2 : {false, true}) {
      codes[by_avx2].resize(spar::kernel::mx_bytes<TypeParam>(x.size()));
      spar::kernel::encode_mx<TypeParam>(x.data(), x.size(), codes[by_avx2].data(), by_avx2);
    }
    ASSERT_EQ(codes[0], codes[1]);
    if (trial % 2 == 0)
      for (auto& byte : codes[0]) byte = static_cast<std::uint8_t>(random());
    for (const bool by_avx2 : {false, true}) {
      y[by_avx2].resize(x.size());
      spar::kernel::decode_mx<TypeParam>(codes[0].data(), x.size(), y[by_avx2].data(), by_avx2);
    }
    for (std::size_t i = 0; i < x.size(); ++i)
      ASSERT_TRUE(std::bit_cast<std::uint32_t>(y[0][i]) == std::bit_cast<std::uint32_t>(y[1][i]) ||
                  (std::isnan(y[0][i]) && std::isnan(y[1][i])))
          << i;
  }
}

/// Every code with every scale, also those that `encode` does not write.
TYPED_TEST(storage_mx, decodes_every_code) {
  const format f = format_of<TypeParam>();
  const mx<TypeParam> codec;
  for (unsigned scale = 0; scale < 256; ++scale) {
    for (unsigned first = 0; first < 1U << f.bits; first += 32) {
      std::vector<std::uint8_t> bytes{static_cast<std::uint8_t>(scale)};
      const unsigned count = std::min(32U, 1U << f.bits);
      for (unsigned e = 0; e < count; e += 8 / f.bits)
        bytes.push_back(static_cast<std::uint8_t>(f.bits == 8 ? first + e : e | (e + 1) << 4));
      const auto floats = decoded<float>(codec, bytes, count);
      const auto doubles = decoded<double>(codec, bytes, count);
      for (unsigned e = 0; e < count; ++e) {
        const double value = f.value(first + e);
        const auto expected = static_cast<float>(std::ldexp(value, static_cast<int>(scale) - 127));
        if (scale == 255 || std::isnan(value)) {
          ASSERT_TRUE(std::isnan(floats[e]) && std::isnan(doubles[e])) << scale << " " << first + e;
        } else {
          ASSERT_EQ(floats[e], expected) << scale << " " << first + e;
          ASSERT_EQ(std::signbit(floats[e]), std::signbit(expected)) << scale << " " << first + e;
          ASSERT_EQ(doubles[e], static_cast<double>(expected)) << scale << " " << first + e;
        }
      }
    }
  }
}

/// Values of all exponents, the elements themselves, the middles between two elements, and the neighbours of both.
template <class Element, class T>
void expect_bytes_of_the_specification() {
  const format f = format_of<Element>();
  const mx<Element> codec;
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  const auto some = [&](int exponent) {
    const unsigned code = static_cast<unsigned>(random() % (f.greatest + 1));
    double value = f.value(code);
    const auto kind = random() % 6;
    if (kind >= 3) value = (value + f.value(std::min(code + 1, f.greatest))) / 2;
    value = std::ldexp(value, exponent);
    if (kind % 3 == 1) value = std::nextafter(static_cast<T>(value), static_cast<T>(infinity));
    if (kind % 3 == 2) value = std::nextafter(static_cast<T>(value), T{});
    return static_cast<T>(random() % 2 == 0 ? value : -value);
  };
  for (int trial = 0; trial < 2'000; ++trial) {
    std::vector<T> x(random() % (trial % 8 < 4 ? 70 : 600));
    const int exponent = static_cast<int>(random() % (128 + 149)) - 149;
    for (T& value : x) {
      switch (trial % 4) {
      case 0:
        value = some(std::clamp(exponent, -140, 110));
        break;
      case 1:
        value = static_cast<T>(std::ldexp(normal(random), std::min(exponent, 120)));
        break;
      case 2:
        value = random() % 3 == 0 ? T{} : some(static_cast<int>(random() % 20));
        break;
      default:
        value = random() % 2 == 0 ? -T{} : static_cast<T>(std::ldexp(1, exponent));
        break;
      }
    }
    ASSERT_EQ(encoded(codec, x), expected_bytes(f, x)) << trial << " " << exponent;
  }
}
TYPED_TEST(storage_mx, floats_have_the_bytes_of_the_specification) {
  expect_bytes_of_the_specification<TypeParam, float>();
}
TYPED_TEST(storage_mx, doubles_have_the_bytes_of_the_specification) {
  expect_bytes_of_the_specification<TypeParam, double>();
}

TYPED_TEST(storage_mx, a_block_with_a_nan_or_an_infinity_becomes_nan) {
  const mx<TypeParam> codec;
  for (const double special : {infinity, -infinity, std::nan(""), -std::nan("")}) {
    for (const std::size_t at : {std::size_t{0}, std::size_t{31}, std::size_t{32}, std::size_t{69}}) {
      std::vector<double> x(70, 1.5);
      x[at] = special;
      const auto bytes = encoded(codec, x);
      const auto back = decoded<double>(codec, bytes, x.size());
      for (std::size_t e = 0; e < x.size(); ++e)
        ASSERT_EQ(std::isnan(back[e]), e / 32 == at / 32) << special << " " << at << " " << e;
    }
  }
}

TYPED_TEST(storage_mx, keeps_its_error_bounds) {
  using codec = mx<TypeParam>;
  std::mt19937_64 random(3);
  double worst = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    std::vector<float> x(32);
    const int exponent = static_cast<int>(random() % 270) - 149;
    float largest = 0;
    for (float& value : x) {
      value = static_cast<float>(std::ldexp(static_cast<double>(random() % 4095) - 2047, exponent - 11));
      largest = std::max(largest, std::abs(value));
    }
    const auto back = decoded<float>(codec{}, encoded(codec{}, x), x.size());
    const double relative = codec::template relative_error<float>(), absolute = codec::template absolute_error<float>();
    for (std::size_t e = 0; e < x.size(); ++e) {
      const double error = std::abs(static_cast<double>(back[e]) - static_cast<double>(x[e]));
      ASSERT_LE(error, relative * static_cast<double>(largest) + absolute) << x[e] << " " << largest;
      if (largest > 0x1p-14F) worst = std::max(worst, error / (relative * static_cast<double>(largest)));
    }
  }
  EXPECT_GT(worst, 0.9); // the bound is not too large
}

TYPED_TEST(storage_mx, rounding_has_no_bias) {
  const mx<TypeParam> codec;
  std::mt19937_64 random(4);
  double sum = 0;
  constexpr int values = 32'000;
  std::vector<float> x(32);
  for (int trial = 0; trial < values / 32; ++trial) {
    for (float& value : x) value = static_cast<float>(random() % 65536) / 65536;
    x[0] = 1; // for the scale; no value saturates
    const auto back = decoded<float>(codec, encoded(codec, x), x.size());
    for (std::size_t e = 0; e < x.size(); ++e) sum += static_cast<double>(back[e]) - static_cast<double>(x[e]);
    for (float& value : x) value = -value;
    auto negative = decoded<float>(codec, encoded(codec, x), x.size());
    for (float& value : negative) value = -value;
    ASSERT_EQ(negative, back);
  }
  // The error of a value is below an eighth, and its deviation below a fourteenth: five deviations of the mean.
  EXPECT_LT(std::abs(sum / values), 5 / (14 * std::sqrt(values)));
}

TYPED_TEST(storage_mx, doubles_beyond_float_are_refused) {
  const auto can = [](std::vector<double> x) { return mx<TypeParam>::can_encode(std::span<const double>(x)); };
  EXPECT_TRUE(can({1, std::numeric_limits<float>::max(), infinity, std::nan("")}));
  EXPECT_FALSE(can({1, 0x1p128}));
  const std::vector<float> floats{std::numeric_limits<float>::max()};
  EXPECT_TRUE(mx<TypeParam>::can_encode(std::span<const float>(floats)));
}

TYPED_TEST(storage_mx, too_few_bytes_are_refused) {
  const mx<TypeParam> codec;
  const std::vector<float> x(40);
  std::vector<float> out(40);
  std::vector<std::byte> bytes(codec.template encoded_bytes<float>(40) - 1);
  EXPECT_THROW(codec.encode(std::span<const float>(x), std::span(bytes), {}), spar::invalid_argument);
  EXPECT_THROW(codec.decode(std::span<const std::byte>(bytes), std::span<float>(out)), spar::invalid_argument);
}

} // namespace
