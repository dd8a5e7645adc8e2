// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The same dense allreduce as dense.cpp, by MPI_Allreduce.
#include <vector>

#include <mpi.h>

int main() {
  MPI_Init(nullptr, nullptr);
  std::vector<float> x(1000, 1.0F);
  MPI_Allreduce(MPI_IN_PLACE, x.data(), 1000, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
}
