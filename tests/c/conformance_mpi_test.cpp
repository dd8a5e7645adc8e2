// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The C interface over MPI has the results, messages and bytes of the interface of C++.
#include "conformance.hpp"

#include <spar/mpi.hpp>
#include <spar/spar_mpi.h>

TEST(conformance_of_c, mpi) {
  spar::mpi world(MPI_COMM_WORLD);
  spar_comm comm = nullptr;
  ASSERT_EQ(spar_comm_from_mpi(MPI_COMM_WORLD, &comm), SPAR_SUCCESS);
  c_test::compare_with_c(world, comm, 60);
  EXPECT_EQ(spar_comm_free(&comm), SPAR_SUCCESS);
}
