// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The main function of every test program over UCX: each process is a rank and runs all tests. scripts/ranks fails if
// one of them fails.
#include "support/ucx_ranks.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <optional>

namespace {

/// Prints the rank of each failure; only rank 0 keeps GoogleTest's own output.
class rank_printer : public testing::EmptyTestEventListener {
 public:
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "rank %d: %s:%d: %s\n", spar_test::meeting().rank(),
                 result.file_name() ? result.file_name() : "?", result.line_number(), result.message());
  }
};

std::optional<spar::rendezvous> ranks;

} // namespace

const spar::rendezvous& spar_test::meeting() { return *ranks; }

int main(int argc, char** argv) {
  ranks.emplace(spar::rendezvous::from_environment());
  testing::InitGoogleTest(&argc, argv);
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  if (ranks->rank() != 0) {
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new rank_printer);
  }
  const int failed = RUN_ALL_TESTS();
  ranks.reset();
  return failed;
}
