/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A user's program in C with the compiled library: sums values of four in-process ranks. */
#include <spar/spar.h>

#include <stddef.h>

static int program(spar_comm comm, void* context) {
  float x[2] = {1, 2};
  const int status = spar_allreduce(comm, x, x, 2, SPAR_FLOAT, SPAR_SUM, NULL);
  (void)context;
  if (status != SPAR_SUCCESS) return status;
  return x[0] == 4 && x[1] == 8 ? 0 : SPAR_ERR_OTHER;
}

int main(void) { return spar_run_threads(4, program, NULL); }
