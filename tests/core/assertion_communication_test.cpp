// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The checks at assertion level "communication".
#undef SPAR_ASSERTION_LEVEL
#define SPAR_ASSERTION_LEVEL 2
#include <spar/core/assertion.hpp>

#include <gtest/gtest.h>

#include <string>

namespace {

using spar::assertion_level;

TEST(assertion_communication, is_the_level) { EXPECT_EQ(spar::active_assertions, assertion_level::communication); }

TEST(assertion_communication, what_holds_passes) {
  EXPECT_NO_THROW(spar::ensure(true, "holds"));
  EXPECT_NO_THROW(spar::ensure<assertion_level::communication>(true, "holds"));
}

TEST(assertion_communication, everything_is_checked) {
  EXPECT_THROW(spar::ensure(false, "the sum is wrong"), spar::assertion_failed);
  EXPECT_THROW(spar::ensure<assertion_level::communication>(false, "ranks differ"), spar::error);
}

} // namespace
