// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The checks at assertion level "none".
#undef SPAR_ASSERTION_LEVEL
#define SPAR_ASSERTION_LEVEL 0
#include <spar/core/assertion.hpp>

#include <gtest/gtest.h>

#include <string>

namespace {

using spar::assertion_level;

TEST(assertion_none, is_the_level) { EXPECT_EQ(spar::active_assertions, assertion_level::none); }

TEST(assertion_none, what_holds_passes) {
  EXPECT_NO_THROW(spar::ensure(true, "holds"));
  EXPECT_NO_THROW(spar::ensure<assertion_level::communication>(true, "holds"));
}

TEST(assertion_none, nothing_is_checked) {
  EXPECT_NO_THROW(spar::ensure(false, "the sum is wrong"));
  EXPECT_NO_THROW(spar::ensure<assertion_level::communication>(false, "ranks differ"));
}

} // namespace
