// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Narrowing, sentences and checksums.
#include <spar/core/error.hpp>
#include <spar/core/util/checked_cast.hpp>
#include <spar/core/util/crc32c.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace {

// --- checked_cast ---

TEST(checked_cast, keeps_what_fits) {
  EXPECT_EQ(spar::checked_cast<std::int32_t>(std::uint64_t{2147483647}), 2147483647);
  EXPECT_EQ(spar::checked_cast<std::uint8_t>(255), 255);
  EXPECT_EQ(spar::checked_cast<std::int8_t>(std::int64_t{-128}), -128);
  static_assert(spar::checked_cast<int>(std::uint64_t{7}) == 7);
}

template <class To, class From>
std::string error_of_cast(From value) {
  try {
    (void)spar::checked_cast<To>(value);
  } catch (const spar::invalid_argument& e) {
    return e.what();
  }
  return {};
}

TEST(checked_cast, refuses_the_rest_with_the_value) {
  EXPECT_NE(error_of_cast<std::int32_t>(std::uint64_t{2147483648}).find("2147483648"), std::string::npos);
  EXPECT_NE(error_of_cast<std::uint32_t>(-1).find("-1"), std::string::npos);
  EXPECT_NE(error_of_cast<std::int8_t>(128).find("[-128, 127]"), std::string::npos);
  EXPECT_FALSE(error_of_cast<std::int64_t>(std::numeric_limits<std::uint64_t>::max()).empty());
}

// --- sentence ---

TEST(sentence, joins_words_and_numbers) {
  EXPECT_EQ(spar::sentence("rank ", 3, " of ", std::uint64_t{18446744073709551615U}, " at ", -0.5, std::string(" s")),
            "rank 3 of 18446744073709551615 at -0.5 s");
  EXPECT_EQ(spar::sentence(std::int64_t{-9223372036854775807 - 1}), "-9223372036854775808");
  EXPECT_EQ(spar::sentence(std::string(5000, 'x'), 1).size(), 5001U);
}

// --- crc32c: vectors from RFC 3720, appendix B.4 ---

TEST(crc32c, known_vectors) {
  EXPECT_EQ(spar::crc32c("123456789", 9), 0xE3069283U);
  std::array<unsigned char, 32> data{};
  EXPECT_EQ(spar::crc32c(data.data(), data.size()), 0x8A9136AAU);
  data.fill(0xFF);
  EXPECT_EQ(spar::crc32c(data.data(), data.size()), 0x62A8AB43U);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<unsigned char>(i);
  EXPECT_EQ(spar::crc32c(data.data(), data.size()), 0x46DD794EU);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<unsigned char>(31 - i);
  EXPECT_EQ(spar::crc32c(data.data(), data.size()), 0x113FDB5CU);
  EXPECT_EQ(spar::crc32c(nullptr, 0), 0U);
}

TEST(crc32c, by_instruction_and_by_table_agree) {
  std::mt19937 random(1);
  std::vector<unsigned char> data(300);
  for (auto& byte : data) byte = static_cast<unsigned char>(random());
  for (std::size_t begin = 0; begin < 9; ++begin)
    for (std::size_t size = 0; size + begin <= data.size(); ++size)
      ASSERT_EQ(spar::crc32c(data.data() + begin, size), spar::detail::crc32c_portable(data.data() + begin, size));
}

TEST(crc32c, notices_every_single_bit) {
  std::array<unsigned char, 68> data{};
  const auto intact = spar::crc32c(data.data(), data.size());
  for (std::size_t bit = 0; bit < 8 * data.size(); ++bit) {
    data[bit / 8] = static_cast<unsigned char>(data[bit / 8] ^ (1U << (bit % 8)));
    ASSERT_NE(spar::crc32c(data.data(), data.size()), intact) << "bit " << bit;
    data[bit / 8] = 0;
  }
}

} // namespace
