// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A sparse sum over threads, in C.
#include <spar/spar.h>

#include <stdio.h>

// Each of the ranks calls this function in a thread of its own.
static int add(spar_comm comm, void* context) {
  int rank = 0;
  spar_comm_rank(comm, &rank);
  const uint32_t indices[] = {7, 100 + (uint32_t)rank}; // ascending, below n
  const float values[] = {1.0F, 2.0F};
  const spar_vector mine = {
      .n = 1000000, .count = 2, .indices = indices, .values = values, .index_bits = 32, .type = SPAR_FLOAT};
  spar_stream sum = NULL;
  spar_vector view;
  (void)context;

  int status = spar_allreduce_sparse(comm, &mine, SPAR_SUM, NULL, &sum);
  if (status == SPAR_SUCCESS) status = spar_stream_view(sum, &view);
  if (status == SPAR_SUCCESS && rank == 0) {
    for (int64_t e = 0; e < view.count; ++e)
      printf("%u: %g\n", ((const uint32_t*)view.indices)[e], ((const float*)view.values)[e]);
  }
  if (status != SPAR_SUCCESS) fprintf(stderr, "rank %d: %s\n", rank, spar_error_text(comm));
  spar_stream_free(&sum);
  return status;
}

int main(void) { return spar_run_threads(3, add, NULL); }
