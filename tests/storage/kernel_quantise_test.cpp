// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The rounding to multiples of a power of two against exact arithmetic.
#include <spar/storage/kernel/quantise.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace spar_test {
namespace {

/// Any finite number whose multiple by `scale` is below `most` in magnitude, often close to a tie.
template <class T>
T any_value(std::mt19937_64& random, T scale, double most) {
  for (;;) {
    using bits = decltype(spar::kernel::detail::magnitude_bits(T{}));
    const auto whole = std::ldexp(static_cast<double>(random() >> 11), -static_cast<int>(random() % 53));
    T x = static_cast<T>((random() % 2 == 0 ? whole : -whole) / 2) / scale;
    if (random() % 4 == 0) x = std::bit_cast<T>(static_cast<bits>(random()));
    if (random() % 4 == 0) x = std::nextafter(x, random() % 2 == 0 ? T{} : std::numeric_limits<T>::infinity());
    if (std::isfinite(x) && std::abs(static_cast<long double>(x) * scale) < static_cast<long double>(most)) return x;
  }
}

template <class Code, class T>
void expect_nearest(std::initializer_list<int> exponents) {
  std::mt19937_64 random(3);
  const double most = sizeof(Code) == 4 ? 0x1p30 : 0x1p62;
  for (const int exponent : exponents) {
    const T step = std::ldexp(T{1}, exponent);
    for (const std::size_t n : {0U, 1U, 15U, 16U, 17U, 3000U}) {
      std::vector<T> x(n), back(n, T{7});
      for (T& value : x) value = any_value<T>(random, 1 / step, most);
      std::vector<Code> codes(n + 1, Code{77});
      spar::kernel::quantise(x.data(), n, 1 / step, codes.data());
      EXPECT_EQ(codes[n], Code{77});
      spar::kernel::dequantise(codes.data(), n, step, back.data());
      for (std::size_t e = 0; e < n; ++e) {
        ASSERT_EQ(codes[e], static_cast<Code>(std::llroundl(std::ldexp(static_cast<long double>(x[e]), -exponent))))
            << x[e] << " in steps of 2^" << exponent;
        ASSERT_EQ(std::bit_cast<decltype(spar::kernel::detail::magnitude_bits(T{}))>(back[e]),
                  std::bit_cast<decltype(spar::kernel::detail::magnitude_bits(T{}))>(
                      static_cast<T>(std::ldexp(static_cast<long double>(codes[e]), exponent) + 0.0L)));
      }
    }
  }
}

TEST(storage_kernel_quantise, rounds_to_the_nearest_multiple) {
  expect_nearest<std::int32_t, float>({-126, -20, -1, 0, 5, 90, 126});
  expect_nearest<std::int64_t, float>({-126, -60, -1, 0, 60});
  expect_nearest<std::int32_t, double>({-1022, -20, 0, 900, 1022});
  expect_nearest<std::int64_t, double>({-1022, -60, -1, 0, 60, 900});
}

template <class T>
void expect_largest() {
  using limits = std::numeric_limits<T>;
  using bits = decltype(spar::kernel::detail::magnitude_bits(T{}));
  const auto bits_of = [](T x) { return static_cast<std::uint64_t>(std::bit_cast<bits>(x)); };
  std::mt19937_64 random(4);
  EXPECT_EQ(spar::kernel::largest_bits<T>(nullptr, 0), 0U);
  for (const std::size_t n : {1U, 2U, 15U, 16U, 17U, 100U}) {
    for (std::size_t at = 0; at < n; ++at) {
      std::vector<T> x(n);
      for (T& value : x) value = static_cast<T>(static_cast<double>(random() % 1000) / 1000) - T(0.5);
      x[at] = T{-3};
      EXPECT_EQ(spar::kernel::largest_bits(x.data(), n), bits_of(T{3}));
      x[at] = -limits::infinity();
      EXPECT_EQ(spar::kernel::largest_bits(x.data(), n), bits_of(limits::infinity()));
      x[n / 2] = -limits::quiet_NaN();
      EXPECT_GT(spar::kernel::largest_bits(x.data(), n), bits_of(limits::infinity()));
    }
  }
  const std::vector<T> tiny{T{0}, -T{0}, -limits::denorm_min()};
  EXPECT_EQ(spar::kernel::largest_bits(tiny.data(), 3), 1U);
  EXPECT_EQ(spar::kernel::largest_bits(tiny.data(), 2), 0U);
}

TEST(storage_kernel_quantise, finds_the_largest_magnitude) {
  expect_largest<float>();
  expect_largest<double>();
}

} // namespace
} // namespace spar_test
