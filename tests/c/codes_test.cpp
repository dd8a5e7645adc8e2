// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Each exception becomes a code of C with its text.
#include "../../src/c/communicator.hpp"

#include <spar/core/error.hpp>

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <string>

namespace {

template <class Error>
void expect(int code, const Error& thrown, const std::string& text) {
  EXPECT_EQ(spar::c::guarded("f", nullptr, [&] { throw thrown; }), code);
  EXPECT_EQ(spar_error_text(nullptr), "f: " + text);
}

} // namespace

TEST(codes_of_c, each_exception) {
  expect(SPAR_ERR_INVALID_ARGUMENT, spar::invalid_argument("1"), "1");
  expect(SPAR_ERR_MISMATCH, spar::mismatch("2"), "2");
  expect(SPAR_ERR_CORRUPT_MESSAGE, spar::corrupt_message("3"), "3");
  expect(SPAR_ERR_PEER_FAILED, spar::peer_failed("4"), "4");
  expect(SPAR_ERR_TIMEOUT, spar::timeout("5"), "5");
  expect(SPAR_ERR_DEADLOCK, spar::deadlock("6"), "6");
  expect(SPAR_ERR_TRANSPORT, spar::transport_error("7"), "7");
  expect(SPAR_ERR_ASSERTION, spar::assertion_failed("8"), "8");
  expect(SPAR_ERR_NO_MEMORY, std::bad_alloc(), "memory could not be allocated");
  expect(SPAR_ERR_OTHER, spar::error("9"), "9");
  expect(SPAR_ERR_OTHER, std::runtime_error("10"), "10");
  expect(SPAR_ERR_OTHER, 11, "an exception of an unknown type");
  expect(12, spar::c::program_failed(12, "12"), "12");
  EXPECT_EQ(spar::c::guarded("f", nullptr, [] {}), SPAR_SUCCESS);
}

TEST(codes_of_c, a_long_text_is_cut) {
  const std::string text(5000, 'x');
  EXPECT_EQ(spar::c::guarded("f", nullptr, [&] { throw spar::error(text); }), SPAR_ERR_OTHER);
  EXPECT_EQ(std::string(spar_error_text(nullptr)).size(), spar::c::communicator::longest_text - 1);
}
