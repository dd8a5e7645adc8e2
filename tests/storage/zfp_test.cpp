// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The coders of zfp blocks on the host: the bytes and values of libzfp, and recorded ones where libzfp is missing.
#include "support/extent.hpp"

#include <spar/core/util/crc32c.hpp>
#include <spar/storage/kernel/zfp/coder.hpp>

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#ifdef SPAR_TEST_LIBZFP
#include "support/libzfp.hpp"
#endif

namespace {

using spar::kernel::detail::zfp_coder;

template <class T>
struct named_coder {
  std::string name;
  zfp_coder<T> coder;
};
/// The coders that this processor can run.
template <class T>
std::vector<named_coder<T>> coders() {
  std::vector<named_coder<T>> all{{"portable", spar::kernel::detail::zfp_portable<T>}};
#if defined(__x86_64__)
  if (spar::kernel::detail::has_zfp_avx2()) all.push_back({"AVX2", spar::kernel::detail::zfp_avx2<T>});
  if (spar::kernel::detail::has_zfp_avx512()) all.push_back({"AVX-512", spar::kernel::detail::zfp_avx512<T>});
#endif
  return all;
}

enum kind { noise, smooth, heavy_tails, zeros, few_nonzeros, any_magnitude, tiny, constant, powers, mixed, kinds };

/// Values of a kind. They depend neither on the library, nor on the order in which a compiler evaluates operands, nor
/// on fused multiply-add: no product rounds before a sum.
template <class T>
std::vector<T> values_of(int kind, std::size_t n, std::uint64_t seed) {
  using limits = std::numeric_limits<T>;
  std::mt19937_64 random(seed);
  const auto uniform = [&] { return static_cast<double>(static_cast<std::int64_t>(random())) * 0x1p-63; };
  const auto scaled = [](double x, int power) { return static_cast<T>(std::ldexp(x, power)); };
  const int least = std::is_same_v<T, float> ? -98 : -962; // smaller blocks are encoded as zeros
  double slope = 0.01, level = 0;
  std::vector<T> x(n);
  for (std::size_t i = 0; i < n; ++i) {
    const double u = uniform(), v = uniform(), w = uniform(), normal = u + v + w;
    const std::uint64_t bits = random();
    const auto below = [&](int end) { return static_cast<int>((bits >> 8) % static_cast<std::uint64_t>(end)); };
    if (i % 512 == 0) slope = 0.01 * u;
    slope += 0x1p-17 * v, level += slope;
    if (level > 2 || level < -2) slope = -slope;
    switch (kind) {
    case noise:
      x[i] = static_cast<T>(normal);
      break;
    case smooth:
      x[i] = static_cast<T>(level);
      break;
    case heavy_tails:
      x[i] = static_cast<T>(1e-3 * u / (0x1p-20 + std::abs(v)));
      break;
    case zeros:
      x[i] = bits % 2 == 0 ? T(0) : -T(0);
      break;
    case few_nonzeros:
      x[i] = bits % 16 == 0 ? static_cast<T>(normal) : T(0);
      break;
    case any_magnitude:
      x[i] = scaled(u, limits::min_exponent - 20 + below(limits::max_exponent - limits::min_exponent + 17));
      break;
    case tiny:
      x[i] = bits % 16 == 0 ? limits::denorm_min() : scaled(u, least - 6 + below(12));
      break;
    case constant:
      x[i] = i % 4 == 0 ? static_cast<T>(normal) : x[i - 1];
      break;
    case powers:
      x[i] = scaled((bits % 2 == 0 ? 1 : -1) * (1 + limits::epsilon() / 2 * (u < 0 ? -1 : 2)), below(8));
      break;
    default:
      x[i] = scaled(normal, -below(40));
      break;
    }
  }
  return x;
}

template <class T>
std::size_t bytes_of(std::size_t n, unsigned limit) {
  return ((n + 3) / 4 * limit + 63) / 64 * 8;
}
/// Encodes into memory of exactly the right size.
template <class T>
std::vector<std::byte> encoded(const zfp_coder<T>& coder, const std::vector<T>& x, unsigned limit) {
  const std::unique_ptr<std::byte[]> exact(new std::byte[bytes_of<T>(x.size(), limit)]);
  spar::kernel::detail::zfp_encode_by(coder, x.data(), x.size(), limit, exact.get());
  return {exact.get(), exact.get() + bytes_of<T>(x.size(), limit)};
}
template <class T>
std::vector<T> decoded(const zfp_coder<T>& coder, const std::vector<std::byte>& in, std::size_t n, unsigned limit) {
  std::vector<T> x(n, T(7));
  x.shrink_to_fit();
  spar::kernel::detail::zfp_decode_by(coder, in.data(), n, limit, x.data());
  return x;
}

template <class A, class B>
bool same_bits(const std::vector<A>& a, const std::vector<B>& b) {
  return a.size() * sizeof(A) == b.size() * sizeof(B) &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(A)) == 0);
}
template <class A>
std::uint32_t checksum(const std::vector<A>& a) {
  return spar::crc32c(a.data(), a.size() * sizeof(A));
}

template <class T>
class zfp_coders : public testing::Test {};
using types = testing::Types<float, double>;
TYPED_TEST_SUITE(zfp_coders, types, );

/// The checksums of the bytes and of the decoded values of each kind, over all rates, as libzfp has them.
template <class T>
constexpr std::array<std::array<std::uint32_t, 2>, kinds> recorded{};
template <>
constexpr std::array<std::array<std::uint32_t, 2>, kinds> recorded<float>{{
    {0xe75f42a7, 0x83f0476b},
    {0x7b8d322c, 0x3a181d70},
    {0xe4c5e4f3, 0x8e65fda8},
    {0x19c79c6c, 0x533779a5},
    {0xac9aed0b, 0x0f474125},
    {0x5e63c145, 0xc6fe6fb9},
    {0xde39d4a3, 0xb03cacda},
    {0x393ac27d, 0x5d3036b5},
    {0x93964143, 0xf537e151},
    {0x77324afd, 0x66589445},
}};
template <>
constexpr std::array<std::array<std::uint32_t, 2>, kinds> recorded<double>{{
    {0x66dd52f1, 0xf5856f2f},
    {0x11c5e3f2, 0xd9d7872a},
    {0x659cc0b0, 0x20d9c221},
    {0x19c79c6c, 0xc90cf4df},
    {0x174b931a, 0x936e87a9},
    {0x48a37386, 0x13f88815},
    {0x75e9d7be, 0xd2075f65},
    {0x0cb00022, 0xc3241d86},
    {0x9ba1343a, 0xf4986f07},
    {0xea60dcbe, 0xfcaed736},
}};

TYPED_TEST(zfp_coders, have_the_recorded_bytes_and_values) {
  using T = TypeParam;
  for (const auto& [name, coder] : coders<T>()) {
    for (int kind = 0; kind < kinds; ++kind) {
      std::vector<std::uint32_t> bytes, values;
      for (unsigned limit = 16; limit <= 128; ++limit) {
        const auto x = values_of<T>(kind, 777, limit);
        const auto out = encoded(coder, x, limit);
        bytes.push_back(checksum(out));
        values.push_back(checksum(decoded(coder, out, x.size(), limit)));
      }
      EXPECT_EQ(checksum(bytes), recorded<T>[static_cast<std::size_t>(kind)][0]) << name << ", kind " << kind;
      EXPECT_EQ(checksum(values), recorded<T>[static_cast<std::size_t>(kind)][1]) << name << ", kind " << kind;
    }
  }
}

/// For 1 to 200 values, of which some or all are in a coder's last groups.
TYPED_TEST(zfp_coders, add_what_they_decode) {
  using T = TypeParam;
  for (const auto& [name, coder] : coders<T>()) {
    for (std::size_t n = 1; n <= 200; ++n) {
      const auto x = values_of<T>(any_magnitude, n, n);
      auto before = values_of<T>(mixed, n, n + 1);
      before[n / 2] = std::numeric_limits<T>::quiet_NaN();
      before[n - 1] = -T(0);
      for (const unsigned limit : {16U, 33U, 64U, 128U}) {
        const auto bytes = encoded(coder, x, limit);
        auto expected = decoded(coder, bytes, n, limit), sum = before;
        for (std::size_t i = 0; i < n; ++i) expected[i] += before[i];
        sum.shrink_to_fit();
        spar::kernel::detail::zfp_decode_by(coder, bytes.data(), n, limit, sum.data(), true);
        ASSERT_TRUE(same_bits(sum, expected)) << name << ", " << n << " values, " << limit << " bits";
      }
    }
  }
}

TYPED_TEST(zfp_coders, encode_finite_values_up_to_an_eighth_of_the_largest_number) {
  using T = TypeParam;
  using limits = std::numeric_limits<T>;
  constexpr T most = limits::max() / 8;
  const T above = std::nextafter(most, limits::max());
  for (std::size_t n = 1; n <= 9; ++n) {
    for (std::size_t i = 0; i < n; ++i) {
      const auto is_encodable = [&](T value) {
        std::vector<T> x(n, -most);
        x[i] = value;
        return spar::kernel::is_zfp_encodable(x.data(), n);
      };
      for (const T value : {most, -most, T(0), limits::denorm_min()}) EXPECT_TRUE(is_encodable(value)) << value;
      for (const T value : {above, -above, limits::max(), limits::infinity(), -limits::infinity(), limits::quiet_NaN()})
        EXPECT_FALSE(is_encodable(value)) << value << " at " << i << " of " << n;
    }
  }
}

#ifdef SPAR_TEST_LIBZFP
using spar_test::decoded_by_libzfp, spar_test::encoded_by_libzfp;

template <class T>
void expect_as_libzfp(const std::vector<T>& x, unsigned limit, const std::string& what) {
  const auto words = encoded_by_libzfp(x.data(), x.size(), limit);
  const auto values = decoded_by_libzfp<T>(words, x.size(), limit);
  std::vector<std::byte> bytes(8 * words.size());
  if (!words.empty()) std::memcpy(bytes.data(), words.data(), bytes.size());
  for (const auto& [name, coder] : coders<T>()) {
    EXPECT_TRUE(same_bits(encoded(coder, x, limit), words)) << name << ", " << what << ", " << limit << " bits";
    EXPECT_TRUE(same_bits(decoded(coder, bytes, x.size(), limit), values))
        << name << ", " << what << ", " << limit << " bits";
  }
}

/// In the full set, each rate has all blocks; otherwise each fifth rate has the same fifth of them.
TYPED_TEST(zfp_coders, have_the_bytes_and_values_of_libzfp) {
  using T = TypeParam;
  const std::size_t blocks = spar_test::is_full() ? 1'000'000 : spar_test::is_shortened ? 10'000 : 100'000;
  for (int kind = 0; kind < kinds; ++kind) {
    const auto x = values_of<T>(kind, 4 * blocks, static_cast<std::uint64_t>(kind));
    for (unsigned rate = 4; rate <= 32; ++rate) {
      const auto begin_of = [&](unsigned fifth) { return x.data() + 4 * blocks / 5 * fifth; };
      const std::vector<T> share(begin_of(rate % 5), begin_of(rate % 5 + 1));
      expect_as_libzfp(spar_test::is_full() ? x : share, 4 * rate, "kind " + std::to_string(kind));
    }
  }
}

TYPED_TEST(zfp_coders, have_the_bytes_and_values_of_libzfp_for_every_size_of_a_block) {
  for (int kind = 0; kind < kinds; ++kind) {
    const auto x = values_of<TypeParam>(kind, 2000, 100 + static_cast<std::uint64_t>(kind));
    for (unsigned limit = 16; limit <= 128; ++limit) expect_as_libzfp(x, limit, "kind " + std::to_string(kind));
  }
}

TYPED_TEST(zfp_coders, have_the_bytes_and_values_of_libzfp_for_every_length) {
  for (std::size_t n = 0; n <= 200; ++n) {
    const auto x = values_of<TypeParam>(noise, n, n);
    for (const unsigned limit : {16U, 17U, 32U, 50U, 64U, 65U, 128U})
      expect_as_libzfp(x, limit, std::to_string(n) + " values");
  }
}

/// Bits that no encoder writes: many planes of zeros, codes that end at the limit, exponents of denormal numbers.
TYPED_TEST(zfp_coders, decode_any_bits_as_libzfp_does) {
  using T = TypeParam;
  constexpr unsigned header = std::is_same_v<T, double> ? 12 : 9;
  const std::size_t blocks = spar_test::is_full() ? 100'000 : spar_test::is_shortened ? 500 : 3000;
  std::mt19937_64 random(1);
  for (unsigned limit = 16; limit <= 128; ++limit) {
    std::vector<std::uint64_t> words((blocks * limit + 63) / 64);
    for (auto& word : words) {
      word = random();
      for (std::uint64_t sparser = random() % 4; sparser > 0; --sparser) word &= random();
    }
    const auto set = [&](std::size_t bit, bool to) {
      words[bit / 64] = (words[bit / 64] & ~(std::uint64_t{1} << bit % 64)) | std::uint64_t{to} << bit % 64;
    };
    for (std::size_t block = 0; block < blocks; ++block) {
      if (random() % 8 != 0) set(block * limit, true); // else zeros, half of the time
      for (unsigned i = 5; i < header && block % 4 == 0; ++i) set(block * limit + i, false); // a small exponent
    }
    std::vector<std::byte> bytes(8 * words.size());
    std::memcpy(bytes.data(), words.data(), bytes.size());
    const auto expected = decoded_by_libzfp<T>(words, 4 * blocks, limit);
    for (const auto& [name, coder] : coders<T>())
      EXPECT_TRUE(same_bits(decoded(coder, bytes, 4 * blocks, limit), expected)) << name << ", " << limit << " bits";
  }
}
#else
TYPED_TEST(zfp_coders, have_the_bytes_and_values_of_libzfp) { GTEST_SKIP() << "no libzfp"; }
#endif

} // namespace
