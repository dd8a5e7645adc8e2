// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One allocation of a rank fails, whichever it is: the rank gets std::bad_alloc, and the other ranks get this reason,
// over processes.
#include "support/extent.hpp"
#include "support/memory_programs.hpp"
#include "support/processes.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <span>

namespace spar_test {
namespace {

template <template <class> class Program>
void each_allocation_fails() {
  communicator world(meeting());
  for (const spar::rank_t failing : {0, world.size() - 1}) {
    std::array<int, 2> first{1, 0}; // of the failing rank: whether the allocation has failed, and the communicator died
    const std::uint64_t step = runs_all_cases() ? 1 : 4;
    for (std::uint64_t number = 1; first[0] != 0; number += step) {
      SCOPED_TRACE(testing::Message() << "allocation " << number << " of rank " << failing);
      communicator all = world.split(0, world.rank());
      const memory_outcome own = run_without_memory<Program>(all, all.rank() == failing ? number : 0);
      first = {own.failed ? 1 : 0, own.dead ? 1 : 0};
      take_from(failing, std::span(first));
      expect_right_end(own, all.rank(), failing, first[1] != 0);
      EXPECT_FALSE(first[1] != 0 && first[0] == 0) << "an abort, although no allocation has failed";
    }
  }
}

TEST(processes_memory, of_blocking_calls) { each_allocation_fails<blocking_calls>(); }
TEST(processes_memory, of_nonblocking_calls) { each_allocation_fails<nonblocking_calls>(); }
#if SPAR_ALL_CASES
TEST(processes_memory, of_calls_with_checksums) { each_allocation_fails<calls_with_checksums>(); }
TEST(processes_memory, of_calls_on_streams) { each_allocation_fails<calls_on_streams>(); }
TEST(processes_memory, of_other_collectives) { each_allocation_fails<other_collectives>(); }
TEST(processes_memory, of_partial_calls) { each_allocation_fails<partial_calls>(); }
TEST(processes_memory, of_partial_steps) { each_allocation_fails<partial_steps>(); }
TEST(processes_memory, of_feedback_steps) { each_allocation_fails<feedback_steps>(); }
TEST(processes_memory, of_fused_calls) { each_allocation_fails<fused_calls>(); }
#endif

} // namespace
} // namespace spar_test
