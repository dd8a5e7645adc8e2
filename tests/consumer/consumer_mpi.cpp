// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A user's program that links spar::mpi; it is compiled and linked, not run.
#include <mpi.h>
#include <spar/core/op.hpp>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Finalize();
  return 0;
}
