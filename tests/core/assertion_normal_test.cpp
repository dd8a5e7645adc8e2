// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The checks at assertion level "normal".
#undef SPAR_ASSERTION_LEVEL
#define SPAR_ASSERTION_LEVEL 1
#include <spar/core/assertion.hpp>

#include <gtest/gtest.h>

#include <string>

namespace {

using spar::assertion_level;

TEST(assertion_normal, is_the_level) { EXPECT_EQ(spar::active_assertions, assertion_level::normal); }

TEST(assertion_normal, what_holds_passes) {
  EXPECT_NO_THROW(spar::ensure(true, "holds"));
  EXPECT_NO_THROW(spar::ensure<assertion_level::communication>(true, "holds"));
}

TEST(assertion_normal, local_conditions_are_checked) {
  try {
    spar::ensure(false, "the sum is wrong");
    ADD_FAILURE() << "no error";
  } catch (const spar::assertion_failed& e) {
    EXPECT_EQ(std::string(e.what()), "the sum is wrong");
  }
  EXPECT_NO_THROW(spar::ensure<assertion_level::communication>(false, "ranks differ"));
}

} // namespace
