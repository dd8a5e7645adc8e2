// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The checks of spar's own invariants, which no macro turns off.
#include <spar/core/error.hpp>

#include <gtest/gtest.h>

#include <string>

namespace {

TEST(assertion, what_holds_passes) { EXPECT_NO_THROW(spar::ensure(true, "holds")); }

TEST(assertion, what_does_not_hold_is_an_error) {
  try {
    spar::ensure(false, "the sum is wrong");
    ADD_FAILURE() << "no error";
  } catch (const spar::assertion_failed& e) {
    EXPECT_EQ(std::string(e.what()), "the sum is wrong");
  }
}

} // namespace
