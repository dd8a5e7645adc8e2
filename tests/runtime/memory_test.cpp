// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One allocation of a rank fails, whichever it is: the rank gets std::bad_alloc, the other ranks get this reason, and
// nothing leaks, with ranks that are threads.
#include "support/extent.hpp"
#include "support/memory_programs.hpp"

#include <spar/transport/threads.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace spar_test {
namespace {

template <template <class> class Program>
void each_allocation_fails(const spar::thread_options& options = {}) {
  for (const spar::rank_t ranks : {2, 3}) {
    for (spar::rank_t failing = 0; failing < ranks; ++failing) {
      bool failed = true;
      for (std::uint64_t number = 1; failed; ++number) {
        spar::thread_group group(ranks, options);
        std::vector<memory_outcome> ended(static_cast<std::size_t>(ranks));
        group.run([&](spar::threads& net) {
          ended[static_cast<std::size_t>(net.rank())] =
              run_without_memory<Program>(net, net.rank() == failing ? number : 0);
        });
        const memory_outcome& first = ended[static_cast<std::size_t>(failing)];
        failed = first.failed;
        for (spar::rank_t r = 0; r < ranks; ++r) {
          SCOPED_TRACE(testing::Message() << "allocation " << number << " of rank " << failing << " of " << ranks);
          expect_right_end(ended[static_cast<std::size_t>(r)], r, failing, first.dead);
          EXPECT_EQ(group.rank(r).memory().live(), 0U);
        }
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

TEST(memory, of_blocking_calls) { each_allocation_fails<blocking_calls>(); }
TEST(memory, of_nonblocking_calls) { each_allocation_fails<nonblocking_calls>(); }
TEST(memory, of_other_collectives) { each_allocation_fails<other_collectives>(); }
TEST(memory, of_partial_calls) { each_allocation_fails<partial_calls>(); }
TEST(memory, of_fused_calls) { each_allocation_fails<fused_calls>(); }
#if SPAR_ALL_CASES
TEST(memory, of_synchronous_calls) { each_allocation_fails<blocking_calls>({.synchronous = true}); }
TEST(memory, of_calls_with_checksums) { each_allocation_fails<calls_with_checksums>(); }
TEST(memory, of_calls_on_streams) { each_allocation_fails<calls_on_streams>(); }
TEST(memory, of_partial_steps) { each_allocation_fails<partial_steps>(); }
TEST(memory, of_feedback_steps) { each_allocation_fails<feedback_steps>(); }
#endif

} // namespace
} // namespace spar_test
