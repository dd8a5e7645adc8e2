// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The launch itself: scripts/mpirun starts one job of that many ranks, collectives work in it, and waiting ranks yield.
#include <gtest/gtest.h>
#include <mpi.h>
#include <sys/resource.h>

namespace {

struct usage {
  double seconds;  ///< processor time of this rank
  double switches; ///< how often it left its core
};

usage used() {
  rusage u{};
  getrusage(RUSAGE_SELF, &u);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return {seconds(u.ru_utime) + seconds(u.ru_stime), static_cast<double>(u.ru_nvcsw + u.ru_nivcsw)};
}

} // namespace

TEST(launch, ranks_form_one_job) {
  int rank = -1;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int sum = rank + 1;
  MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  EXPECT_EQ(sum, size * (size + 1) / 2);
}

// A rank that waits without yielding keeps its core for whole time slices, milliseconds each; one that yields for
// microseconds. Counting switches instead of seconds makes this hold on a busy machine, too.
TEST(launch, waiting_ranks_give_their_core_away) {
  constexpr int rounds = 500;
  MPI_Barrier(MPI_COMM_WORLD);
  const usage before = used();
  int value = 1;
  for (int i = 0; i < rounds; ++i) MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  const usage after = used();
  EXPECT_EQ(value, 1);
  EXPECT_LT(after.seconds - before.seconds, 0.5e-3 * (after.switches - before.switches) + 0.05);
}
