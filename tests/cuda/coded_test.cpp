// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The kernels for the storage coded with equal widths, against the code of the host.
#include "kernel_test.hpp"
#include "support/extent.hpp"

#include <spar/cuda/kernel/coded.cuh>
#include <spar/storage/coded.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <vector>

namespace {

using kernel_test::vector;
using spar::storage::coded;

template <class T, class Index>
struct entries {
  vector<Index> indices;
  vector<T> values;
  spar::index_range range;

  [[nodiscard]] spar::coo_span<T, Index> view() const {
    return {std::span<const Index>(indices), std::span<const T>(values)};
  }
};

template <unsigned Mantissa, class T, class Index>
vector<std::byte> by_host(const entries<T, Index>& s) {
  const coded<Mantissa> codec{.fast = true};
  std::vector<std::byte> out(codec.template bound<T, Index>(s.range, s.indices.size()));
  out.resize(codec.encode(s.view(), s.range, std::span(out)));
  return {out.begin(), out.end()};
}

template <unsigned Mantissa, class T, class Index>
vector<std::byte> by_device(const entries<T, Index>& s) {
  vector<std::byte> out(coded<Mantissa>{}.template bound<T, Index>(s.range, s.indices.size()));
  vector<std::uint64_t> sizes(2), words(spar::kernel::coded_words(s.indices.size()), 0xa5);
  constexpr unsigned dropped = coded<Mantissa>::template dropped<T>;
  spar::kernel::start_encode_coded<dropped>(s.view(), s.range.begin, out.data(), sizes.data(), words.data(), nullptr);
  kernel_test::finish();
  out.resize(sizes[0] + sizes[1]);
  return out;
}

/// Decodes `bytes`, which end at the end of their memory. Returns whether they are a code of so many entries, which are
/// then in `to`.
template <unsigned Mantissa, class T, class Index>
bool decodes(const vector<std::byte>& bytes, entries<T, Index>& to) {
  vector<std::uint32_t> aligned((bytes.size() + 3) / 4);
  auto* const in = reinterpret_cast<std::byte*>(aligned.data());
  std::copy(bytes.begin(), bytes.end(), in);
  vector<std::uint64_t> wrong(1), words(spar::kernel::coded_words(to.indices.size()), 0xa5);
  constexpr unsigned dropped = coded<Mantissa>::template dropped<T>;
  spar::kernel::start_decode_coded<dropped>({in, bytes.size()}, to.range, std::span(to.indices), to.values.data(),
                                            wrong.data(), words.data(), nullptr);
  kernel_test::finish();
  return wrong[0] == 0;
}

template <class T>
bool same_bits(const vector<T>& a, const vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// The kernels encode to the bytes of the host, and decode to its entries.
template <unsigned Mantissa, class T, class Index>
void compare(const entries<T, Index>& s) {
  const auto expected = by_host<Mantissa>(s);
  ASSERT_EQ(expected[0] & std::byte{3}, std::byte{3}) << "the host sends runs";
  ASSERT_EQ((by_device<Mantissa>(s)), expected);
  const std::size_t n = s.indices.size();
  entries<T, Index> host{vector<Index>(n), vector<T>(n), s.range}, device = host;
  coded<Mantissa>::template decode<T, Index>(std::span(expected), s.range,
                                             {std::span(host.indices), std::span(host.values)});
  ASSERT_TRUE((decodes<Mantissa>(expected, device)));
  EXPECT_EQ(device.indices, s.indices);
  EXPECT_TRUE(same_bits(device.values, host.values));
}

/// Values of all kinds, or those behind a threshold.
template <class T>
T value_of(std::mt19937_64& random, bool any) {
  const std::uint64_t bits = random();
  T value;
  std::memcpy(&value, &bits, sizeof value);
  const bool negative = std::numeric_limits<T>::is_signed && bits % 2 == 0;
  return any ? value : static_cast<T>((negative ? -1 : 1) * (1000 + static_cast<double>(bits % 5000) / 7));
}

/// Entries with gaps of up to `width` bits, which change after some blocks.
template <class T, class Index>
entries<T, Index> some_entries(std::size_t n, unsigned width, bool any, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  entries<T, Index> s{{}, {}, {seed * 77, 0}};
  std::uint64_t next = s.range.begin + random() % 3000;
  for (std::size_t e = 0; e < n; ++e) {
    const unsigned bits = e / 300 % 3 == 1 ? 3 : width;
    next += bits == 0 ? 0 : random() >> (64 - bits);
    s.indices.push_back(static_cast<Index>(next++));
    s.values.push_back(value_of<T>(random, any));
  }
  s.range.end = next + seed % 2;
  return s;
}

template <class T, class Index>
void compare_sizes() {
  std::uint64_t seed = 0;
  for (const std::size_t n : {1U, 255U, 256U, 257U, 2U, 31U, 511U, 512U, 513U, 2500U}) {
    for (const bool any : {false, true}) {
      if (!spar_test::runs_case(7, n, any, sizeof(T), sizeof(Index))) continue;
      ++seed;
      kernel_test::set_order(seed, 1 + static_cast<unsigned>(seed % 4));
      SCOPED_TRACE(testing::Message() << n << " entries, any bits: " << any);
      const auto s = some_entries<T, Index>(n, sizeof(Index) == 4 ? 17 : 40, any, seed);
      compare<52>(s);
      compare<7>(s);
    }
  }
}

TEST(device_coded, has_the_bytes_of_the_host_for_every_size) {
  compare_sizes<float, std::uint32_t>();
  compare_sizes<double, std::uint64_t>();
  compare_sizes<float, std::uint64_t>();
  compare_sizes<std::int32_t, std::uint32_t>();
  compare_sizes<std::uint32_t, std::uint32_t>();
  compare_sizes<std::int64_t, std::uint32_t>();
  compare_sizes<std::uint64_t, std::uint64_t>();
}

/// Blocks of every width: whole ones, and shorter ones.
TEST(device_coded, packs_numbers_of_every_width) {
  for (unsigned width = 1; width <= 64; ++width) {
    for (const std::size_t n : {256U, 70U}) {
      if (!spar_test::runs_case(9, width, n)) continue;
      std::mt19937_64 random(width);
      entries<std::uint64_t, std::uint64_t> s{{}, {}, {5, std::uint64_t{1} << 60}};
      std::uint64_t next = 5;
      for (std::size_t e = 0; e < n; ++e) {
        next += random() >> (64 - std::min(width, 50U)) | std::uint64_t{e == 3} << (std::min(width, 50U) - 1);
        s.indices.push_back(next++);
        s.values.push_back(e == 9 ? ~std::uint64_t{0} >> (64 - width) : random() >> (64 - width));
      }
      SCOPED_TRACE(testing::Message() << width << " bits, " << n << " numbers");
      compare<52>(s);
    }
  }
}

/// Ends, carries, subnormal numbers, infinities and NaN.
template <class T>
void compare_rounding() {
  using limits = std::numeric_limits<T>;
  std::mt19937_64 random(3);
  entries<T, std::uint32_t> s{{}, {}, {0, 5000}};
  for (const T value : {T(0), -T(0), limits::max(), limits::lowest(), limits::infinity(), -limits::infinity(),
                        limits::quiet_NaN(), limits::denorm_min(), limits::min(), std::nextafter(limits::min(), T(0))})
    s.values.push_back(value);
  s.values.push_back(std::bit_cast<T>(std::bit_cast<spar::kernel::magnitude<T>>(limits::infinity()) + 1)); // NaN
  for (int e = 0; e < 200; ++e) {
    const T one = T(1) + std::ldexp(T(1), -static_cast<int>(random() % 12));
    s.values.push_back(random() % 2 == 0 ? one : std::nextafter(one, T(random() % 3)));
  }
  for (std::uint32_t e = 0; e < s.values.size(); ++e) s.indices.push_back(e * 9 + e % 4);
  compare<1>(s);
  compare<7>(s);
  compare<22>(s);
  compare<51>(s);
}
TEST(device_coded, rounds_like_the_host) {
  compare_rounding<float>();
  compare_rounding<double>();
}

/// Whether a kernel takes a message for valid, which must then have the entries that the host decodes; otherwise the
/// host refuses the message, or the message has another code: the values, whose code begins at `values_at`, need not
/// have equal widths.
template <class T, class Index>
bool is_accepted(const vector<std::byte>& bytes, std::size_t n, spar::index_range range, std::size_t values_at) {
  entries<T, Index> device{vector<Index>(n), vector<T>(n), range}, host = device;
  bool host_accepts = true;
  try {
    coded<52>::decode<T, Index>(std::span(bytes), range, {std::span(host.indices), std::span(host.values)});
  } catch (const spar::corrupt_message&) {
    host_accepts = false;
  }
  const bool other_code = bytes.size() <= values_at || (bytes[0] & std::byte{3}) != std::byte{3} ||
                          (bytes[values_at] & std::byte{2}) == std::byte{0};
  if (!decodes<52>(bytes, device)) {
    EXPECT_TRUE(!host_accepts || other_code) << "the host takes these bytes";
    return false;
  }
  EXPECT_TRUE(host_accepts) << "the host refuses these bytes";
  EXPECT_EQ(device.indices, host.indices);
  EXPECT_TRUE(same_bits(device.values, host.values));
  return true;
}

template <class T, class Index>
std::size_t values_at(const entries<T, Index>& s) {
  std::vector<std::byte> out(spar::kernel::coded_indices_bound<Index>(s.indices.size()));
  std::byte* const end = spar::kernel::encode_indices(std::span<const Index>(s.indices), s.range.begin,
                                                      spar::kernel::coding::fastest, out.data());
  return static_cast<std::size_t>(end - out.data());
}

template <class T, class Index>
void damage(std::size_t n) {
  const auto s = some_entries<T, Index>(n, 13, false, 4);
  const auto bytes = by_host<52>(s);
  const std::size_t values = values_at(s);
  const auto accepts = [values](const vector<std::byte>& in, std::size_t count, spar::index_range range) {
    return is_accepted<T, Index>(in, count, range, values);
  };
  ASSERT_TRUE(accepts(bytes, n, s.range));
  for (std::size_t e = 0; e < bytes.size(); ++e) {
    const bool in_head = e < 12 || (e >= values && e < values + 12); // also widths
    if (!spar_test::runs_case(in_head ? 3 : 130, e)) continue;
    for (const unsigned flip : {1U, 0x40U, 0xFFU}) {
      if (!spar_test::runs_case(2, e, flip)) continue;
      auto damaged = bytes;
      damaged[e] ^= static_cast<std::byte>(flip);
      (void)accepts(damaged, n, s.range); // many damages are other valid messages
    }
    auto shorter = bytes;
    shorter.resize(e);
    EXPECT_FALSE(accepts(shorter, n, s.range)) << e << " of " << bytes.size() << " bytes";
  }
  auto longer = bytes;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(accepts(longer, n, s.range));
  EXPECT_FALSE(accepts(bytes, n + 256, s.range));
  EXPECT_FALSE(accepts(bytes, n - 256, s.range));
  EXPECT_FALSE(accepts(bytes, n, {s.range.begin, s.indices.back()}));
  EXPECT_TRUE(accepts(bytes, n, {s.range.begin, std::uint64_t{s.indices.back()} + 1}));
  EXPECT_FALSE(accepts({}, n, s.range));
}

TEST(device_coded, finds_what_the_host_finds_in_damaged_messages) {
  damage<float, std::uint32_t>(300);
  damage<double, std::uint64_t>(257);
  if (spar_test::runs_all_cases()) damage<std::int32_t, std::uint64_t>(1100);
}

/// A width beyond the type, in place of the width 0 of equal values, whose block has no bytes.
TEST(device_coded, refuses_widths_beyond_the_type) {
  auto s = some_entries<float, std::uint32_t>(300, 13, false, 4);
  std::fill(s.values.begin(), s.values.end(), 1.5F);
  const auto bytes = by_host<52>(s);
  const std::size_t values = values_at(s);
  for (const std::size_t block : {0U, 1U}) {
    auto damaged = bytes;
    const std::size_t width = values + 1 + sizeof(float) + block;
    ASSERT_EQ(damaged[width], std::byte{0});
    damaged[width] = std::byte{33};
    EXPECT_FALSE((is_accepted<float, std::uint32_t>(damaged, 300, s.range, values))) << block;
  }
}

/// A sum of gaps beyond the type of the indices, in a block and across blocks.
TEST(device_coded, refuses_gaps_whose_sum_overflows) {
  for (const std::size_t at : {1U, 255U, 256U, 500U}) {
    auto s = some_entries<float, std::uint32_t>(600, 3, false, 1);
    s.range = {0, std::uint64_t{1} << 32};
    for (std::size_t e = at; e < 600; ++e) s.indices[e] += 0xfffff000U; // wraps: the indices do not ascend
    const auto bytes = by_host<52>(s);
    EXPECT_FALSE((is_accepted<float, std::uint32_t>(bytes, 600, s.range, values_at(s)))) << at;
  }
  entries<float, std::uint64_t> s{{1, 2, 1}, {1, 2, 3}, {0, spar::kernel::most_coded_indices}}; // a gap of 2^64 - 2
  EXPECT_FALSE((is_accepted<float, std::uint64_t>(by_host<52>(s), 3, s.range, values_at(s))));
}

} // namespace
