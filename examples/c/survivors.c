// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Processes without MPI that make 100 steps, and go on without those that are lost: scripts/ranks 3 ./survivors
#include <spar/spar_ucx.h>

#include <stdio.h>

// Makes the steps from `*step` on, until all are made or a rank is lost.
static int make_steps(spar_comm net, int64_t* step) {
  int64_t first = *step; // a rank may have completed one step more than others
  int status = spar_allreduce(net, &first, &first, 1, SPAR_INT64, SPAR_MIN, NULL);
  if (status == SPAR_SUCCESS) *step = first;
  while (status == SPAR_SUCCESS && *step < 100) {
    float gradient[1000] = {0};
    status = spar_allreduce(net, gradient, gradient, 1000, SPAR_FLOAT, SPAR_SUM, "ring");
    if (status == SPAR_SUCCESS) ++*step;
  }
  return status;
}

int main(void) {
  spar_comm net = NULL, rest = NULL;
  int64_t step = 0;
  int status = spar_comm_from_environment(&net);
  if (status == SPAR_SUCCESS) status = spar_comm_set_deadline(net, 5); // seconds until a silent rank counts as lost
  if (status == SPAR_SUCCESS) status = make_steps(net, &step);
  while (status == SPAR_ERR_PEER_FAILED) {
    fprintf(stderr, "%s\n", spar_error_text(net));
    status = spar_comm_shrink(net, &rest);
    spar_comm_free(&net);
    net = rest;
    if (status == SPAR_SUCCESS) status = make_steps(net, &step);
  }
  int rank = 0, size = 0;
  if (status != SPAR_SUCCESS) fprintf(stderr, "%s\n", spar_error_text(NULL));
  if (spar_comm_rank(net, &rank) == SPAR_SUCCESS && spar_comm_size(net, &size) == SPAR_SUCCESS && rank == 0)
    printf("%d ranks have completed %d steps\n", size, (int)step);
  spar_comm_free(&net);
  return status;
}
