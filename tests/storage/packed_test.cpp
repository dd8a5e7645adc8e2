// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Packed integers against a definition of their bits, and malformed bytes.
#include "support/extent.hpp"

#include <spar/collective/allreduce/compose.hpp>
#include <spar/storage/packed.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

namespace spar_test {
namespace {

using spar::storage::packed;

/// Bit `at` of the lane `lane` of a block, whose lanes have words of T in turn.
template <class T>
bool bit_of(const std::byte* block, std::size_t lane, std::size_t at) {
  constexpr std::size_t bits = 8 * sizeof(T);
  std::make_unsigned_t<T> word;
  std::memcpy(&word, block + at / bits * 16 + lane * sizeof(T), sizeof(T));
  return (word >> at % bits & 1) != 0;
}

/// The definition: the widths of all blocks of 128 values, then the blocks. Value i of a block is number i / lanes of
/// lane i % lanes; a lane has the bits of its numbers one after the other, and ends with a whole word.
template <class T>
std::vector<T> defined(const std::vector<std::byte>& bytes, std::size_t count) {
  using unsigned_type = std::make_unsigned_t<T>;
  constexpr std::size_t lanes = 16 / sizeof(T), bits = 8 * sizeof(T);
  std::vector<T> values(count);
  const std::byte* block = bytes.data() + (count + 127) / 128;
  unsigned_type before = 0;
  for (std::size_t b = 0; b < count; b += 128) {
    const std::size_t size = std::min<std::size_t>(128, count - b), rows = (size + lanes - 1) / lanes;
    const auto width = std::to_integer<std::size_t>(bytes[b / 128]);
    for (std::size_t i = 0; i < size; ++i) {
      unsigned_type code = 0;
      for (std::size_t k = 0; k < width; ++k) {
        const unsigned_type bit = bit_of<T>(block, i % lanes, i / lanes * width + k) ? 1 : 0;
        code = static_cast<unsigned_type>(code | bit << k);
      }
      const auto half = static_cast<unsigned_type>(code / 2);
      before = static_cast<unsigned_type>(before + (code % 2 == 0 ? half : ~half));
      values[b + i] = static_cast<T>(before);
    }
    block += (rows * width + bits - 1) / bits * 16;
  }
  EXPECT_EQ(block, bytes.data() + bytes.size());
  return values;
}

template <class T>
std::vector<std::byte> encoded(const packed& codec, const std::vector<T>& values) {
  std::vector<std::byte> bytes(codec.encoded_bytes<T>(values.size()) + 1, std::byte{0xa5});
  const std::span<std::byte> room = std::span(bytes).first(bytes.size() - 1);
  const std::size_t size = codec.encode(std::span<const T>(values), room, {});
  EXPECT_LE(size, room.size());
  EXPECT_EQ(bytes.back(), std::byte{0xa5}) << "the codec wrote beyond its bytes";
  bytes.resize(size);
  bytes.shrink_to_fit(); // the address sanitizer finds what reads beyond the bytes
  return bytes;
}

/// Values of up to `bits` bits and a sign, of which some neighbours are alike.
template <class T>
std::vector<T> random_values(std::size_t count, unsigned bits, std::mt19937_64& random) {
  std::vector<T> values(count);
  T last = 0;
  for (T& value : values) {
    if (random() % 4 != 0) {
      const std::uint64_t magnitude = bits == 0 ? 0 : random() >> (64 - bits);
      last = static_cast<T>(random() % 2 == 0 ? magnitude : 0 - magnitude);
    }
    value = last;
  }
  return values;
}

template <class T>
void expect_values() {
  std::mt19937_64 random(1);
  const packed codec;
  const int vectors = spar_test::runs_all_cases() ? 4000 : 1500;
  for (int k = 0; k < vectors; ++k) {
    const std::size_t count = random() % (k % 2 == 0 ? 20 : 400);
    const auto values = random_values<T>(count, static_cast<unsigned>(random() % (8 * sizeof(T) + 1)), random);
    const std::vector<std::byte> bytes = encoded(codec, values);
    ASSERT_EQ(defined<T>(bytes, count), values);
    std::vector<T> out(count, 7), sum = random_values<T>(count, 8 * sizeof(T), random), before = sum;
    codec.decode(std::span<const std::byte>(bytes), std::span(out));
    ASSERT_EQ(out, values);
    codec.decode_and_add(std::span<const std::byte>(bytes), std::span(sum));
    using unsigned_type = std::make_unsigned_t<T>;
    for (std::size_t i = 0; i < count; ++i) {
      const auto expected = static_cast<unsigned_type>(values[i]) + static_cast<unsigned_type>(before[i]);
      ASSERT_EQ(sum[i], static_cast<T>(expected));
    }
  }
}

TEST(storage_packed, keeps_all_integers) {
  expect_values<std::int32_t>();
  expect_values<std::uint32_t>();
  expect_values<std::int64_t>();
  expect_values<std::uint64_t>();
}

TEST(storage_packed, takes_as_few_bytes_as_documented) {
  const packed codec;
  const auto bytes = [&](const std::vector<std::int32_t>& values) { return encoded(codec, values).size(); };
  EXPECT_EQ(bytes({}), 0U);
  EXPECT_EQ(bytes(std::vector<std::int32_t>(1000)), 8U);            // a width for each block
  EXPECT_EQ(bytes(std::vector<std::int32_t>(256, 5)), 2U + 16 * 4); // 0 to 5: 10 in 4 bits
  std::vector<std::int32_t> ramp(256);
  for (std::size_t i = 0; i < ramp.size(); ++i) ramp[i] = static_cast<std::int32_t>(i) * 3;
  EXPECT_EQ(bytes(ramp), 2U + 2 * 16 * 3); // differences of 3: 6 in 3 bits
  EXPECT_EQ(bytes({-1}), 1U + 16);
  EXPECT_EQ(codec.encoded_bytes<std::int32_t>(128), 1U + 128 * 4);
  EXPECT_EQ(codec.encoded_bytes<std::int64_t>(129), 2U + 128 * 8 + 16);
  EXPECT_EQ(packed{.bits = 3}.encoded_bytes<std::int32_t>(256), 2U + 2 * 16 * 3);
}

TEST(storage_packed, holds_sums_in_the_bits_of_their_magnitude) {
  for (const std::int64_t most : {std::int64_t{0}, std::int64_t{1}, std::int64_t{1000}, (std::int64_t{1} << 30) - 1,
                                  (std::int64_t{1} << 62) - 1}) {
    const packed codec{.bits = static_cast<unsigned>(std::bit_width(4 * static_cast<std::uint64_t>(most)))};
    const std::vector<std::int64_t> values{most, -most, most, 0, -most, most};
    const std::vector<std::byte> bytes = encoded(codec, values);
    std::vector<std::int64_t> out(values.size());
    codec.decode(std::span<const std::byte>(bytes), std::span(out));
    EXPECT_EQ(out, values);
  }
}

TEST(storage_packed, refuses_values_wider_than_its_bits_and_writes_nothing_beyond_their_room) {
  for (const std::size_t wide : {0U, 127U, 128U, 200U, 299U}) {
    std::vector<std::int32_t> values(300);
    values[wide] = 128; // a difference of 256 after zigzag: 9 bits
    const packed codec{.bits = 8};
    std::vector<std::byte> room(codec.encoded_bytes<std::int32_t>(values.size())); // exact, for the address sanitizer
    EXPECT_THROW(codec.encode(std::span<const std::int32_t>(values), std::span(room), {}), spar::invalid_argument);
    values[wide] = 127;
    EXPECT_LE(codec.encode(std::span<const std::int32_t>(values), std::span(room), {}), room.size());
  }
}

/// A codec of variable size must encode all values: a schedule would not ask `can_encode`.
struct asks : packed {
  template <class T>
  [[nodiscard]] bool can_encode(std::span<const T>) const {
    return true;
  }
};
static_assert(spar::block_codec<packed, std::int32_t> && !spar::block_codec<asks, std::int32_t>);

template <class T>
void expect_refused(const std::vector<std::byte>& bytes, std::size_t count, const packed& codec) {
  std::vector<T> out(count);
  EXPECT_THROW(codec.decode(std::span<const std::byte>(bytes), std::span(out)), spar::corrupt_message);
  EXPECT_THROW(codec.decode_and_add(std::span<const std::byte>(bytes), std::span(out)), spar::corrupt_message);
}

TEST(storage_packed, refuses_malformed_bytes) {
  std::mt19937_64 random(2);
  const auto values = random_values<std::int32_t>(300, 20, random);
  const packed codec;
  const std::vector<std::byte> bytes = encoded(codec, values);
  for (std::size_t size = 0; size < bytes.size(); ++size) // each prefix
    expect_refused<std::int32_t>({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)}, 300, codec);
  std::vector<std::byte> longer = bytes;
  longer.push_back({});
  expect_refused<std::int32_t>(longer, 300, codec);
  for (std::size_t count : {std::size_t{0}, std::size_t{128}, std::size_t{256}, std::size_t{384}, std::size_t{1} << 20})
    expect_refused<std::int32_t>(bytes, count, codec);
  for (std::size_t b = 0; b < 3; ++b) { // other widths of a block, which need other numbers of words
    for (unsigned width = 0; width < 256; ++width) {
      std::vector<std::byte> other = bytes;
      const auto words = [&](unsigned w) { return ((b < 2 ? 32 : 11) * w + 31) / 32; };
      if (width <= 32 && words(width) == words(std::to_integer<unsigned>(other[b]))) continue;
      other[b] = static_cast<std::byte>(width);
      expect_refused<std::int32_t>(other, 300, codec);
    }
  }
  expect_refused<std::int32_t>(bytes, 300, packed{.bits = 20}); // the differences need 22
  std::vector<std::byte> wide(1 + 33 * 16);                     // as many bytes as a width of 33 bits needs
  wide[0] = std::byte{33};
  expect_refused<std::int32_t>(wide, 128, codec);
}

TEST(storage_packed, refuses_a_buffer_that_is_too_small) {
  const std::vector<std::int32_t> values(300);
  std::vector<std::byte> room(packed{}.encoded_bytes<std::int32_t>(300) - 1);
  EXPECT_THROW(packed{}.encode(std::span<const std::int32_t>(values), std::span(room), {}), spar::invalid_argument);
}

/// A codec that rounds and has encodings of any size composes only where no rank encodes again what it forwards.
struct rounds_in_any_size : packed {
  static constexpr bool exact = false;
};
static_assert(spar::block_codec<packed, std::int32_t> && spar::block_codec<packed, std::uint64_t>);
static_assert(!spar::block_codec<packed, float> && !spar::block_codec<packed, double>);
static_assert(spar::block_codec<rounds_in_any_size, std::int32_t>);
template <class Storage, class Schedule>
inline constexpr bool fits =
    spar::composes<spar::verdict_of<spar::selector::everything, Storage, spar::flat, Schedule>>;
static_assert(fits<packed, spar::ring> && fits<packed, spar::rabenseifner> && fits<packed, spar::dsar_split>);
static_assert(fits<rounds_in_any_size, spar::ring> && fits<rounds_in_any_size, spar::recursive_doubling>);
static_assert(fits<rounds_in_any_size, spar::rabenseifner> && fits<rounds_in_any_size, spar::dsar_split>);
static_assert(!fits<rounds_in_any_size, spar::cheapest>);

} // namespace
} // namespace spar_test
