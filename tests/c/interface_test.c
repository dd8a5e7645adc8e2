// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Each function of the C interface, with the numbers of ranks of the design, over threads.
#include "all_functions.h"
#include "check.h"

/* The last rank leaves; the others go on. */
static int go_on(spar_comm comm, void* context) {
  spar_comm rest = NULL, wider = NULL;
  int rank = 0, ranks = 0;
  (void)context;
  OK(spar_comm_rank(comm, &rank));
  OK(spar_comm_size(comm, &ranks));
  if (rank == ranks - 1) return 0;
  CHECK(spar_barrier(comm) == SPAR_ERR_PEER_FAILED);
  OK(spar_comm_shrink(comm, &rest));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "has called shrink before", spar_comm_shrink(comm, &wider));
  OK(spar_comm_free(&comm));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "it is a rank of threads", spar_comm_grow(rest, &wider));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'rest' is NULL", spar_comm_shrink(rest, NULL));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'wider' is NULL", spar_comm_grow(rest, NULL));
  CHECK(wider == NULL);
  --ranks;
  OK(all_functions(rest, &ranks));
  OK(spar_comm_free(&rest));
  return 0;
}

/* A rank whose communicator was freed is not waited for. */
static int go_on_alone(void) {
  spar_comm comms[2], rest = NULL;
  int ranks = 1;
  OK(spar_comm_from_threads(2, comms));
  OK(spar_comm_free(&comms[1]));
  CHECK(spar_barrier(comms[0]) == SPAR_ERR_PEER_FAILED);
  OK(spar_comm_shrink(comms[0], &rest));
  OK(spar_comm_free(&comms[0]));
  OK(all_functions(rest, &ranks));
  OK(spar_comm_free(&rest));
  return 0;
}

int main(void) {
  const int sizes[] = {1, 2, 3, 4, 5, 7, 8, 13};
  size_t i;
  CHECK(strcmp(spar_version(), "") != 0);
  for (i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    int ranks = sizes[i];
    OK(spar_run_threads(ranks, all_functions, &ranks));
    if (ranks > 1 && ranks < 5) OK(spar_run_threads(ranks, go_on, NULL));
  }
  return go_on_alone();
}
