// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Each exception becomes a code of C with its text.
#include "../../src/c/communicator.hpp"

#include <spar/core/error.hpp>

#include <gtest/gtest.h>

#include <cstdint>
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

TEST(codes_of_c, a_program_of_cpp_throws) {
  static spar_comm seen;
  const auto throws = [](spar_comm comm, void*) -> int {
    seen = comm;
    throw std::runtime_error("out of paper");
  };
  EXPECT_EQ(spar_run_threads(1, throws, nullptr), SPAR_ERR_OTHER);
  EXPECT_EQ(std::string(spar_error_text(nullptr)), "spar_run_threads: out of paper");
  int rank = 0;
  EXPECT_EQ(spar_comm_rank(seen, &rank), SPAR_ERR_INVALID_ARGUMENT); // the communicator was freed
}

TEST(codes_of_c, a_long_text_is_cut) {
  const std::string text(5000, 'x');
  EXPECT_EQ(spar::c::guarded("f", nullptr, [&] { throw spar::error(text); }), SPAR_ERR_OTHER);
  EXPECT_EQ(std::string(spar_error_text(nullptr)).size(), spar::c::communicator::longest_text - 1);
}

// What a program in C cannot use: names of C++, its templates and its members.
TEST(codes_of_c, sentences_about_compositions_name_nothing_of_cpp) {
  spar_comm one = nullptr;
  ASSERT_EQ(spar_comm_from_threads(1, &one), SPAR_SUCCESS);
  double x[4] = {1, 2, 3, 4};
  const std::uint64_t index = 1;
  const double neutral = 0;
  spar_op own = 0;
  ASSERT_EQ(spar_op_create(
                SPAR_DOUBLE, "own", [](const void*, void*, std::int64_t, void*) {}, nullptr, &neutral, &own),
            SPAR_SUCCESS);
  int refused = 0;
  const auto read = [&](int status) {
    if (status == SPAR_SUCCESS) return;
    EXPECT_EQ(status, SPAR_ERR_INVALID_ARGUMENT);
    ++refused;
    const std::string said = spar_error_text(nullptr);
    for (const char* const name : {"::", "storage<", "(n)", "()", "on_tree", ".k ", ".density", "operation an "})
      EXPECT_EQ(said.find(name), std::string::npos) << said;
  };
  for (const char* const select : {"everything", "nonzeros", "exact_topk", "exact_topk:0.5", "gaussian:0.5"}) {
    for (const char* const store : {"coo", "coded:bf16", "qsgd:8", "coo+qsgd:8", "bound:1e-3"}) {
      for (const char* const over : {"flat", "tree", "blueconnect"}) {
        for (const char* const by : {"cheapest", "ring", "two_shot", "ssar_split", "gather_and_merge", "chains",
                                     "quantile_owners", "tree_of_topk", "balanced_owners", "pruned_owners"}) {
          const std::string text = std::string("select=") + select + ",store=" + store + ",over=" + over + ",by=" + by;
          for (const spar_op op : {spar_op{SPAR_SUM}, spar_op{SPAR_MAX}, own}) {
            read(spar_allreduce(one, x, x, 4, SPAR_DOUBLE, op, text.c_str()));
            const spar_vector mine{4, 1, &index, x, 0, 64, SPAR_DOUBLE};
            spar_stream sum = nullptr;
            read(spar_allreduce_sparse(one, &mine, op, text.c_str(), &sum));
            EXPECT_EQ(spar_stream_free(&sum), SPAR_SUCCESS);
          }
          spar_feedback feedback = nullptr;
          read(spar_feedback_create(one, SPAR_DOUBLE, 32, text.c_str(), &feedback));
          EXPECT_EQ(spar_feedback_free(&feedback), SPAR_SUCCESS);
        }
      }
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_EQ(spar_op_free(&own), SPAR_SUCCESS);
  EXPECT_EQ(spar_comm_free(&one), SPAR_SUCCESS);
}
