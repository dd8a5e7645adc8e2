// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The launch itself: scripts/mpirun starts one job with the requested number of ranks, collectives work in it, and
// waiting ranks yield their cores.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdlib>
#include <string>

TEST(launch, ranks_form_one_job) {
  int rank = -1;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int sum = rank + 1;
  MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  EXPECT_EQ(sum, size * (size + 1) / 2);
}

// Checks the settings that make ranks yield, not times, which say little on a busy machine.
TEST(launch, waiting_ranks_give_their_core_away) {
#ifdef OPEN_MPI
  const char* const idle = std::getenv("OMPI_MCA_mpi_yield_when_idle");
  EXPECT_EQ(std::string(idle != nullptr ? idle : ""), "1");
#else
  void* const progress = dlsym(RTLD_DEFAULT, "ucp_worker_progress");
  ASSERT_NE(progress, nullptr);
  Dl_info where{};
  ASSERT_NE(dladdr(progress, &where), 0);
  EXPECT_NE(std::string(where.dli_fname).find("libspar_yield"), std::string::npos) << where.dli_fname;
#endif
}
