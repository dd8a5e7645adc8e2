// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Numbers with units on spar_perf's command line.
#include "../../tools/spar_perf/units.hpp"

#include <gtest/gtest.h>

#include <string>

namespace {

using spar::perf::usage_error;

TEST(Units, CountsHaveBinarySuffixes) {
  EXPECT_EQ(spar::perf::parse_count("--count", "1000000"), 1000000U);
  EXPECT_EQ(spar::perf::parse_count("--count", "1e6"), 1000000U);
  EXPECT_EQ(spar::perf::parse_count("--count", "16M"), 16U << 20);
  EXPECT_EQ(spar::perf::parse_count("--count", "0.5K"), 512U);
  EXPECT_EQ(spar::perf::parse_count("--count", "8G"), std::uint64_t{8} << 30);
}

TEST(Units, CountsAreWhole) {
  for (const char* text : {"1.5", "-1", "M", "", "16m", "16MB", "1 M", "nan", "inf", "1e300"}) {
    EXPECT_THROW(spar::perf::parse_count("--count", text), usage_error) << text;
  }
}

TEST(Units, Seconds) {
  EXPECT_DOUBLE_EQ(spar::perf::parse_seconds("--latency", "1us"), 1e-6);
  EXPECT_DOUBLE_EQ(spar::perf::parse_seconds("--latency", "2.5ms"), 2.5e-3);
  EXPECT_DOUBLE_EQ(spar::perf::parse_seconds("--latency", "3s"), 3);
  EXPECT_DOUBLE_EQ(spar::perf::parse_seconds("--latency", "40ns"), 40e-9);
  EXPECT_DOUBLE_EQ(spar::perf::parse_seconds("--latency", "0"), 0);
  for (const char* text : {"1", "1u", "us", "-1us", "1 us", "1GB/s"}) {
    EXPECT_THROW(spar::perf::parse_seconds("--latency", text), usage_error) << text;
  }
}

TEST(Units, Rates) {
  EXPECT_DOUBLE_EQ(spar::perf::parse_rate("--bandwidth", "1GB/s"), 1e9);
  EXPECT_DOUBLE_EQ(spar::perf::parse_rate("--bandwidth", "1GiB/s"), 0x1p30);
  EXPECT_DOUBLE_EQ(spar::perf::parse_rate("--bandwidth", "100Gbit/s"), 12.5e9);
  for (const char* text : {"1", "1GB", "GB/s", "-1GB/s", "1us", "1e308KB/s"}) {
    EXPECT_THROW(spar::perf::parse_rate("--bandwidth", text), usage_error) << text;
  }
}

TEST(Units, ErrorsNameTheOptionAndTheText) {
  try {
    spar::perf::parse_rate("--bandwidth", "fast");
    FAIL();
  } catch (const usage_error& e) {
    EXPECT_EQ(std::string(e.what()).find("--bandwidth must be a number like 1GB/s"), 0U) << e.what();
    EXPECT_NE(std::string(e.what()).find("not 'fast'"), std::string::npos) << e.what();
  }
}

} // namespace
