// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One allocation of a rank fails, whichever it is: the rank gets std::bad_alloc, and the other ranks get this reason,
// over MPI.
#include "support/extent.hpp"
#include "support/memory_programs.hpp"

#include <spar/mpi.hpp>

#include <gtest/gtest.h>
#include <mpi.h>

#include <array>
#include <cstdint>
#include <new>
#include <optional>
#include <string>

namespace spar_test {
namespace {

template <template <class> class Program>
void each_allocation_fails() {
  spar::mpi world{MPI_COMM_WORLD};
  for (const spar::rank_t failing : {0, world.size() - 1}) {
    std::array<int, 2> first{1, 0}; // of the failing rank: whether the allocation has failed, and the communicator died
    const std::uint64_t step = runs_all_cases() ? 1 : 4;
    for (std::uint64_t number = 1; first[0] != 0; number += step) {
      SCOPED_TRACE(testing::Message() << "allocation " << number << " of rank " << failing);
      spar::mpi all = world.split(0, world.rank());
      const memory_outcome own = run_without_memory<Program>(all, all.rank() == failing ? number : 0);
      first = {own.failed ? 1 : 0, own.dead ? 1 : 0};
      MPI_Bcast(first.data(), 2, MPI_INT, failing, MPI_COMM_WORLD);
      expect_right_end(own, all.rank(), failing, first[1] != 0);
      EXPECT_FALSE(first[1] != 0 && first[0] == 0) << "an abort, although no allocation has failed";
    }
  }
}

/// Calls `make`, which constructs a spar::mpi and then calls its argument, on all ranks, with each allocation of one
/// rank failing until then: all ranks fail.
template <class Make>
void each_allocation_of_construction_fails(Make make) {
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (const int failing : {0, size - 1}) {
    int failed = 1;
    for (std::uint64_t number = 1; failed != 0; ++number) {
      std::string error;
      std::optional<failing_allocation> allocations(rank == failing ? number : 0);
      failed = 1;
      try {
        make([&] {
          failed = 0;
          allocations.reset();
        });
      } catch (const std::bad_alloc&) {
        error = "std::bad_alloc";
      } catch (const spar::peer_failed& e) {
        error = e.what();
      }
      allocations.reset();
      MPI_Bcast(&failed, 1, MPI_INT, failing, MPI_COMM_WORLD);
      const std::string reason =
          "rank " + std::to_string(failing) + " has failed to make its communicator, so this rank has none either";
      EXPECT_EQ(error, failed == 0 ? "" : rank == failing ? "std::bad_alloc" : reason) << "allocation " << number;
      EXPECT_TRUE(failed != 0 || number > 10);
    }
  }
}

TEST(mpi_memory, of_construction) {
  each_allocation_of_construction_fails([](auto made) {
    const spar::mpi net{MPI_COMM_WORLD};
    made();
  });
}
TEST(mpi_memory, of_split) {
  spar::mpi world{MPI_COMM_WORLD};
  each_allocation_of_construction_fails([&](auto made) {
    const spar::mpi part = world.split(0, world.rank());
    made();
  });
  EXPECT_FALSE(world.dead());
}
TEST(mpi_memory, of_blocking_calls) { each_allocation_fails<blocking_calls>(); }
TEST(mpi_memory, of_nonblocking_calls) { each_allocation_fails<nonblocking_calls>(); }
#if SPAR_ALL_CASES
TEST(mpi_memory, of_calls_with_checksums) { each_allocation_fails<calls_with_checksums>(); }
TEST(mpi_memory, of_calls_on_streams) { each_allocation_fails<calls_on_streams>(); }
TEST(mpi_memory, of_other_collectives) { each_allocation_fails<other_collectives>(); }
TEST(mpi_memory, of_partial_calls) { each_allocation_fails<partial_calls>(); }
TEST(mpi_memory, of_partial_steps) { each_allocation_fails<partial_steps>(); }
TEST(mpi_memory, of_feedback_steps) { each_allocation_fails<feedback_steps>(); }
TEST(mpi_memory, of_fused_calls) { each_allocation_fails<fused_calls>(); }
#endif

} // namespace
} // namespace spar_test
