// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The version as macros, as text, and as CMake reads it.
#include <spar/spar.hpp>

#include <gtest/gtest.h>

#include <string>

TEST(Version, TheTextIsThatOfTheMacros) {
  static_assert(!spar::version.empty());
  const std::string text = std::to_string(SPAR_VERSION_MAJOR) + "." + std::to_string(SPAR_VERSION_MINOR) + "." +
                           std::to_string(SPAR_VERSION_PATCH);
  EXPECT_EQ(spar::version, text);
}

TEST(Version, CMakeReadsTheSame) { EXPECT_EQ(spar::version, SPAR_CMAKE_VERSION); }
