// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The C interface over MPI has the results, messages and bytes of the interface of C++.
#include "conformance.hpp"

#include <spar/mpi.hpp>
#include <spar/spar_mpi.h>

#include <cstddef>
#include <vector>

#if SPAR_ALL_CASES // otherwise, c.conformance compares the same calls on threads, and c.mpi makes each call over MPI
TEST(conformance_of_c, mpi) {
  spar::mpi world(MPI_COMM_WORLD);
  spar_comm comm = nullptr;
  ASSERT_EQ(spar_comm_from_mpi(MPI_COMM_WORLD, &comm), SPAR_SUCCESS);
  c_test::compare_with_c(world, comm, 60);
  EXPECT_EQ(spar_comm_free(&comm), SPAR_SUCCESS);
}
#endif

TEST(conformance_of_c, a_progress_thread_over_mpi_takes_part_in_rounds) {
  spar_comm comm = nullptr, twin = nullptr;
  ASSERT_EQ(spar_comm_from_mpi(MPI_COMM_WORLD, &comm), SPAR_SUCCESS);
  ASSERT_EQ(spar_comm_from_mpi(MPI_COMM_WORLD, &twin), SPAR_SUCCESS);
  int rank = 0, ranks = 0, provided = 0;
  ASSERT_EQ(spar_comm_rank(comm, &rank), SPAR_SUCCESS);
  ASSERT_EQ(spar_comm_size(comm, &ranks), SPAR_SUCCESS);
  MPI_Query_thread(&provided);
  if (provided != MPI_THREAD_MULTIPLE) GTEST_SKIP() << "without MPI_THREAD_MULTIPLE";
  ASSERT_EQ(spar_comm_set_progress_thread(comm, 1), SPAR_SUCCESS) << spar_error_text(comm);
  spar_partial reduce = nullptr;
  ASSERT_EQ(spar_partial_create(comm, 1, SPAR_DOUBLE, SPAR_SUM, "solo", nullptr, 64, &reduce), SPAR_SUCCESS);
  const int late = ranks - 1;
  double x = 1, rest = 0;
  std::vector<int> presence(static_cast<std::size_t>(ranks));
  // The last rank is in a call of another communicator until the others have the result of their round.
  if (rank == late) {
    ASSERT_EQ(spar_barrier(twin), SPAR_SUCCESS);
  }
  ASSERT_EQ(spar_partial_reduce(reduce, &x, 1, presence.data()), SPAR_SUCCESS);
  if (rank != late) {
    ASSERT_EQ(spar_barrier(twin), SPAR_SUCCESS);
  }
  EXPECT_EQ(presence.back(), ranks == 1 ? SPAR_FRESH : SPAR_ABSENT);
  ASSERT_EQ(spar_partial_drain(reduce, &rest, 1, nullptr), SPAR_SUCCESS);
  EXPECT_EQ(x + rest, ranks);
  EXPECT_EQ(spar_partial_free(&reduce), SPAR_SUCCESS);
  EXPECT_EQ(spar_comm_free(&twin), SPAR_SUCCESS);
  EXPECT_EQ(spar_comm_free(&comm), SPAR_SUCCESS);
}
