// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Processes in C over UCX that go on after one of them has been killed, and then take another one in.
#define _POSIX_C_SOURCE 200809L
#include "all_functions.h"
#include "check.h"

#include <spar/spar_ucx.h>

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { first_ranks = 3, processes = first_ranks + 1 };

/* The sum of 2^id over all ranks, whose number is `ranks`. */
static int members(spar_comm comm, int id, int ranks, int64_t* sum) {
  int size = 0;
  OK(spar_comm_size(comm, &size));
  CHECK(size == ranks);
  *sum = (int64_t)1 << id;
  OK(spar_allreduce(comm, sum, sum, 1, SPAR_INT64, SPAR_SUM, NULL));
  return 0;
}

static int rank_program(int id) {
  spar_comm comm = NULL, rest = NULL, wider = NULL;
  int64_t sum = 0, x = 1;
  int ranks = first_ranks;
  OK(spar_comm_from_environment(&comm));
  OK(spar_comm_set_deadline(comm, 30));
  CHECK(members(comm, id, first_ranks, &sum) == 0 && sum == 7);
  if (id == 1) raise(SIGKILL);
  CHECK(spar_allreduce(comm, &x, &x, 1, SPAR_INT64, SPAR_SUM, NULL) == SPAR_ERR_PEER_FAILED);
  OK(spar_comm_shrink(comm, &rest));
  OK(spar_comm_free(&comm));
  CHECK(members(rest, id, first_ranks - 1, &sum) == 0 && sum == 5);
  while (wider == NULL) OK(spar_comm_grow(rest, &wider));
  CHECK(members(rest, id, first_ranks - 1, &sum) == 0 && sum == 5); /* remains as it was */
  OK(spar_comm_free(&rest));
  CHECK(members(wider, id, first_ranks, &sum) == 0 && sum == 13);
  OK(all_functions(wider, &ranks));
  return spar_comm_free(&wider);
}

static int joiner_program(int id) {
  spar_comm comm = NULL;
  int64_t sum = 0;
  int rank = -1, ranks = first_ranks;
  OK(spar_comm_join(&comm));
  OK(spar_comm_rank(comm, &rank));
  CHECK(rank == first_ranks - 1);
  CHECK(members(comm, id, first_ranks, &sum) == 0 && sum == 13);
  OK(all_functions(comm, &ranks));
  return spar_comm_free(&comm);
}

/* scripts/ranks has started one process with the place where to meet; its children are the ranks. */
int main(void) {
  pid_t children[processes];
  int id, wrong = 0;
  for (id = 0; id < processes; ++id) {
    children[id] = fork();
    CHECK(children[id] >= 0);
    if (children[id] == 0) {
      char rank[2] = {(char)('0' + id), 0}, size[2] = {'0' + first_ranks, 0};
      setenv("RANK", rank, 1);
      setenv("LOCAL_RANK", rank, 1);
      setenv("WORLD_SIZE", size, 1);
      setenv("LOCAL_WORLD_SIZE", size, 1);
      setenv("SPAR_DEADLINE", "60", 1);
      exit(id < first_ranks ? rank_program(id) : joiner_program(id));
    }
  }
  for (id = 0; id < processes; ++id) {
    int status = 0;
    CHECK(waitpid(children[id], &status, 0) == children[id]);
    if (id == 1 ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : status == 0) continue;
    fprintf(stderr, "process %d ended with the status %d\n", id, status);
    ++wrong;
  }
  return wrong;
}
