// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A sparse sum over MPI, in C.
#include <spar/spar_mpi.h>

#include <stdio.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  spar_comm world = NULL;
  spar_stream sum = NULL;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const uint32_t indices[] = {7, 100 + (uint32_t)rank};
  const float values[] = {1.0F, 2.0F};
  const spar_vector mine = {
      .n = 1000000, .count = 2, .indices = indices, .values = values, .index_bits = 32, .type = SPAR_FLOAT};

  int status = spar_comm_from_mpi(MPI_COMM_WORLD, &world);
  if (status == SPAR_SUCCESS) status = spar_allreduce_sparse(world, &mine, SPAR_SUM, NULL, &sum);
  spar_vector view;
  if (status == SPAR_SUCCESS) status = spar_stream_view(sum, &view);
  if (status == SPAR_SUCCESS && rank == 0) printf("%g at index 7\n", ((const float*)view.values)[0]);
  if (status != SPAR_SUCCESS) fprintf(stderr, "rank %d: %s\n", rank, spar_error_text(world));

  spar_stream_free(&sum);
  spar_comm_free(&world); // before MPI_Finalize
  MPI_Finalize();
  return status;
}
