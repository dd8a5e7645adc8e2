// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The launch itself: scripts/mpirun starts one job of that many ranks, and collectives work in it.
#include <gtest/gtest.h>
#include <mpi.h>

TEST(launch, ranks_form_one_job) {
  int rank = -1;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int sum = rank + 1;
  MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  EXPECT_EQ(sum, size * (size + 1) / 2);
}

TEST(launch, waiting_ranks_give_their_core_away) {
  // Without yielding each of these rounds costs a time slice when ranks outnumber cores, 4 to 12 ms.
  constexpr int rounds = 500;
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  int value = 1;
  for (int i = 0; i < rounds; ++i) MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  const double each = (MPI_Wtime() - begin) / rounds;
  EXPECT_EQ(value, 1);
  EXPECT_LT(each, 2e-3);
}
