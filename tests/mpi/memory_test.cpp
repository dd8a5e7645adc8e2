// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One allocation of a rank fails while the ranks make a communicator over MPI: all ranks get an error.
#include "support/global_allocations.hpp"

#include <spar/mpi.hpp>

#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdint>
#include <new>
#include <optional>
#include <string>

namespace spar_test {
namespace {

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

} // namespace
} // namespace spar_test
