// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the C interface refuses, and how calls fail.
#include "check.h"

#include <stdlib.h>

static void add(const void* in, void* inout, int64_t count, void* context) {
  (void)in, (void)inout, (void)count, (void)context;
}

static int arguments(spar_comm comm) {
  float x[4] = {1, 2, 3, 4};
  double odd[2];
  const uint32_t indices[2] = {3, 1};
  spar_vector v = {.n = 10, .count = 2, .indices = indices, .values = x, .index_bits = 32, .type = SPAR_FLOAT};
  spar_stream sum = NULL;
  spar_request request = NULL;
  spar_op op = 0;
  spar_comm part = NULL;
  int64_t begin, end;
  int done = 0;
  const int64_t bounds[2] = {0, -4}, wrong[2] = {0, 3};

  FAILS(SPAR_ERR_INVALID_ARGUMENT, "spar_allreduce: the pointer 'in' is NULL, but 'n' is 4",
        spar_allreduce(comm, NULL, x, 4, SPAR_FLOAT, SPAR_SUM, NULL));
  CHECK(strstr(spar_error_text(comm), "'in' is NULL") != NULL);
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'out' is NULL", spar_allreduce(comm, x, NULL, 4, SPAR_FLOAT, SPAR_SUM, NULL));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'n' is -1", spar_allreduce(comm, x, x, -1, SPAR_FLOAT, SPAR_SUM, NULL));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "more values than memory",
        spar_allreduce(comm, x, x, INT64_MAX, SPAR_FLOAT, SPAR_SUM, NULL));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'type' is 99", spar_allreduce(comm, x, x, 4, 99, SPAR_SUM, NULL));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'op' is 77", spar_allreduce(comm, x, x, 4, SPAR_FLOAT, 77, NULL));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'in' and 'out' overlap",
        spar_allreduce(comm, x, x + 1, 2, SPAR_FLOAT, SPAR_SUM, NULL));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "not a multiple of 8",
        spar_allreduce(comm, (char*)odd + 4, (char*)odd + 4, 1, SPAR_DOUBLE, SPAR_SUM, NULL));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "no_such_system",
        spar_allreduce(comm, x, x, 4, SPAR_FLOAT, SPAR_SUM, "no_such_system"));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'hosts' is NULL", spar_comm_set_hosts(comm, NULL));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "maximum; with this selector or codec, expected the sum or the average",
        spar_allreduce(comm, x, x, 4, SPAR_FLOAT, SPAR_MAX, "ring+qsgd:8"));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'request' is NULL",
        spar_start_allreduce(comm, x, x, 4, SPAR_FLOAT, SPAR_SUM, NULL, NULL));

  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'sum' is NULL", spar_allreduce_sparse(comm, &v, SPAR_SUM, NULL, NULL));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'mine' is NULL", spar_allreduce_sparse(comm, NULL, SPAR_SUM, NULL, &sum));
  v.count = 1;
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "use error feedback (any_feedback in C++, spar_feedback_create in C",
        spar_allreduce_sparse(comm, &v, SPAR_SUM, "ok_topk:0.01", &sum));
  v.count = 2;
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "must ascend, as coalesce makes them",
        spar_allreduce_sparse(comm, &v, SPAR_SUM, NULL, &sum));
  v.index_bits = 16;
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'index_bits' is 16; expected 32 or 64",
        spar_allreduce_sparse(comm, &v, SPAR_SUM, NULL, &sum));
  v.index_bits = 32;
  v.n = -1;
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'n' is -1", spar_allreduce_sparse(comm, &v, SPAR_SUM, NULL, &sum));
  v.n = INT64_C(1) << 33;
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "32-bit indices", spar_allreduce_sparse(comm, &v, SPAR_SUM, NULL, &sum));
  v.n = 3;
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "index 3 at entry 0", spar_coalesce(&v, SPAR_SUM, &sum));
  v.n = 10;
  v.count = -2;
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'count' is -2", spar_allgather_sparse(comm, &v, (spar_gathered*)&sum));
  v.count = 2;
  v.first = 1;
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'first' is 1", spar_coalesce(&v, SPAR_SUM, &sum));
  v.first = 0;
  v.indices = NULL;
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'indices' is NULL, but 'count' is 2", spar_coalesce(&v, SPAR_SUM, &sum));
  v.indices = indices;
  v.values = NULL;
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'values' is NULL", spar_coalesce(&v, SPAR_SUM, &sum));
  CHECK(sum == NULL);

  FAILS(SPAR_ERR_INVALID_ARGUMENT, "the root is rank 5", spar_broadcast(comm, x, 4, SPAR_FLOAT, 5));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "bound 1 in 'bounds' is -4",
        spar_reduce_scatter(comm, x, 4, SPAR_FLOAT, SPAR_SUM, bounds));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "bounds", spar_reduce_scatter(comm, x, 4, SPAR_FLOAT, SPAR_SUM, wrong));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'ranks' is 0", spar_block(4, 0, 0, &begin, &end));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'rank' is 2", spar_block(4, 2, 2, &begin, &end));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'colour' is -1", spar_comm_split(comm, -1, 0, &part));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'function' is NULL", spar_op_create(SPAR_FLOAT, "own", NULL, NULL, x, &op));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'neutral' is NULL", spar_op_create(SPAR_FLOAT, "own", add, NULL, NULL, &op));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'type' is 0", spar_op_create(0, "own", add, NULL, x, &op));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'op' is 0", spar_allreduce(comm, x, x, 4, SPAR_FLOAT, op, NULL));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "deadline", spar_comm_set_deadline(comm, -1));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "alpha of the network model", spar_comm_set_network(comm, -1, 0));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "beta of the network model", spar_comm_set_network(comm, 1e-6, -1));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'reason' is NULL", spar_comm_abort(comm, NULL));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'ranks' is 0", spar_run_threads(0, NULL, NULL));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'program' is NULL", spar_run_threads(1, NULL, NULL));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'request' is NULL", spar_wait(&request));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'request' is NULL", spar_wait_for(request, 1, &done));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'request' is NULL", spar_wait(NULL));
  // The communicator still works.
  OK(spar_allreduce(comm, x, x, 4, SPAR_FLOAT, SPAR_SUM, NULL));
  return 0;
}

static int error_feedback(spar_comm comm) {
  float x[4] = {1, 2, 3, 4};
  const void* values;
  int64_t n;
  spar_feedback feedback = NULL;
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'algorithm' is NULL", spar_feedback_create(comm, SPAR_FLOAT, 32, NULL, &feedback));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'index_bits' is 8",
        spar_feedback_create(comm, SPAR_FLOAT, 8, "topka:0.1", &feedback));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'ring'", spar_feedback_create(comm, SPAR_FLOAT, 32, "ring", &feedback));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'type' is 3; error feedback takes",
        spar_feedback_create(comm, SPAR_INT32, 32, "topka:0.1", &feedback));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'feedback' is NULL", spar_feedback_residual(feedback, &values, &n));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'feedback' is NULL", spar_feedback_reduce(feedback, comm, x, 4, SPAR_SUM));
  OK(spar_feedback_create(comm, SPAR_FLOAT, 32, "topka:0.1", &feedback));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'values' is NULL", spar_feedback_reduce(feedback, comm, NULL, 4, SPAR_SUM));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'saved' is NULL", spar_feedback_load(feedback, NULL, 4));
  OK(spar_feedback_free(&feedback));
  return 0;
}

static int partial_reducers(spar_comm comm) {
  float x[4] = {1, 2, 3, 4};
  spar_partial partial = NULL;
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'participation' is 'nobody'",
        spar_partial_create(comm, 4, SPAR_FLOAT, SPAR_SUM, "nobody", NULL, 64, &partial));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'participation' is 'quorum:1x'",
        spar_partial_create(comm, 4, SPAR_FLOAT, SPAR_SUM, "quorum:1x", NULL, 64, &partial));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "quorum is 9",
        spar_partial_create(comm, 4, SPAR_FLOAT, SPAR_SUM, "quorum:9", NULL, 64, &partial));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'tau' is -1; expected at least 0",
        spar_partial_create(comm, 4, SPAR_FLOAT, SPAR_SUM, "solo", NULL, -1, &partial));
  OK(spar_partial_create(comm, 4, SPAR_FLOAT, SPAR_SUM, "solo", NULL, 64, &partial));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "dimension 3", spar_partial_reduce(partial, x, 3, NULL));
  OK(spar_partial_free(&partial));
  return 0;
}

static int handles(void) {
  float x[1] = {1};
  const uint32_t index = 0;
  const spar_vector v = {.n = 1, .count = 1, .indices = &index, .values = x, .index_bits = 32, .type = SPAR_FLOAT};
  spar_comm comm = NULL, gone;
  spar_stream stream = NULL, gone_stream, again = NULL;
  spar_vector view;
  int size = 0, i;
  OK(spar_comm_from_threads(1, &comm));
  gone = comm;
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'stream' is the handle of a communicator",
        spar_stream_view((spar_stream)comm, &view));
  OK(spar_allreduce_sparse(comm, &v, SPAR_SUM, NULL, &stream));
  OK(spar_comm_free(&comm));
  CHECK(comm == NULL);
  OK(spar_comm_free(&comm));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "was freed already", spar_comm_size(gone, &size));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "was freed already", spar_comm_free(&gone));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'comm' is NULL", spar_barrier(comm));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "was freed already", spar_allreduce(gone, x, x, 1, SPAR_FLOAT, SPAR_SUM, NULL));
  OK(spar_stream_view(stream, &view)); // outlives its communicator
  CHECK(*(const float*)view.values == 1);
  gone_stream = stream;
  OK(spar_stream_free(&stream));
  for (i = 0; i < 100; ++i) { // a new object in the same slot has another handle
    OK(spar_coalesce(&v, SPAR_SUM, &again));
    FAILS(SPAR_ERR_INVALID_ARGUMENT, "was freed already", spar_stream_view(gone_stream, &view));
    OK(spar_stream_free(&again));
  }
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "is not a handle", spar_stream_view((spar_stream)(void*)x, &view));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'comms' is NULL", spar_comm_from_threads(2, NULL));
  return 0;
}

// Both ranks of a communicator, used by one thread in turn.
static int failures(void) {
  spar_comm two[2];
  spar_request request[2] = {NULL, NULL};
  float x[2] = {1, 2}, y[2] = {1, 2};

  OK(spar_comm_from_threads(2, two));
  OK(spar_comm_set_deadline(two[0], 0.001));
  FAILS(SPAR_ERR_TIMEOUT, "spar_allreduce", spar_allreduce(two[0], x, x, 2, SPAR_FLOAT, SPAR_SUM, NULL));
  CHECK(strstr(spar_error_text(two[0]), "spar_allreduce") != NULL);
  CHECK(strcmp(spar_error_text(two[1]), "") == 0);
  FAILS(SPAR_ERR_PEER_FAILED, "", spar_allreduce(two[1], y, y, 2, SPAR_FLOAT, SPAR_SUM, NULL));
  OK(spar_comm_free(&two[0]));
  OK(spar_comm_free(&two[1]));

  OK(spar_comm_from_threads(2, two));
  OK(spar_start_allreduce(two[0], x, x, 2, SPAR_FLOAT, SPAR_SUM, NULL, &request[0]));
  FAILS(SPAR_ERR_MISMATCH, "1", spar_allreduce(two[1], y, y, 1, SPAR_FLOAT, SPAR_SUM, NULL));
  CHECK(spar_wait(&request[0]) != SPAR_SUCCESS);
  CHECK(request[0] == NULL);
  OK(spar_comm_free(&two[0]));
  OK(spar_comm_free(&two[1]));

  OK(spar_comm_from_threads(2, two));
  OK(spar_start_allreduce(two[0], x, x, 2, SPAR_FLOAT, SPAR_SUM, NULL, &request[0]));
  OK(spar_cancel(request[0]));
  CHECK(spar_wait(&request[0]) == SPAR_ERR_PEER_FAILED);
  FAILS(SPAR_ERR_PEER_FAILED, "cancelled", spar_barrier(two[1]));
  OK(spar_comm_free(&two[0]));
  OK(spar_comm_free(&two[1]));

  OK(spar_comm_from_threads(2, two));
  OK(spar_comm_abort(two[0], "out of paper"));
  FAILS(SPAR_ERR_PEER_FAILED, "out of paper", spar_barrier(two[1]));
  OK(spar_comm_free(&two[0]));
  OK(spar_comm_free(&two[1]));

  OK(spar_comm_from_threads(2, two)); // a rank that has freed its communicator has left
  OK(spar_comm_free(&two[0]));
  CHECK(spar_barrier(two[1]) == SPAR_ERR_PEER_FAILED);
  OK(spar_comm_free(&two[1]));

  OK(spar_comm_from_threads(2, two)); // freed while a call is in flight
  OK(spar_start_allreduce(two[0], x, x, 2, SPAR_FLOAT, SPAR_SUM, NULL, &request[0]));
  OK(spar_start_allreduce(two[1], y, y, 2, SPAR_FLOAT, SPAR_SUM, NULL, &request[1]));
  OK(spar_comm_free(&two[0]));
  OK(spar_comm_free(&two[1]));
  {
    int done = 0;
    while (!done) {
      OK(spar_test(request[1], &done));
      OK(spar_test(request[0], &done));
    }
  }
  OK(spar_wait(&request[1]));
  OK(spar_wait(&request[0]));
  CHECK(x[1] == 4 && y[1] == 4);
  return 0;
}

static int one_fails(spar_comm comm, void* context) {
  int rank = -1;
  (void)context;
  OK(spar_comm_rank(comm, &rank));
  if (rank == 1) return 42;
  return spar_barrier(comm) == SPAR_ERR_PEER_FAILED ? SPAR_SUCCESS : 100;
}

static int frees_itself(spar_comm comm, void* context) {
  (void)context;
  OK(spar_barrier(comm));
  return spar_comm_free(&comm);
}

/// A rank that fails as soon as it has its part does not end the division of the others.
static int fails_after_split(spar_comm comm, void* context) {
  int rank = -1, round;
  (void)context;
  OK(spar_comm_rank(comm, &rank));
  for (round = 0; round < 300; ++round) {
    spar_comm part = NULL;
    OK(spar_comm_split(comm, 0, -rank, &part));
    if (rank == round % 3) OK(spar_comm_abort(part, "no use for it"));
    CHECK(spar_barrier(part) == SPAR_ERR_PEER_FAILED);
    OK(spar_comm_free(&part));
  }
  return 0;
}

int main(void) {
  spar_comm one = NULL;
  int status;
  CHECK(strcmp(spar_error_text(NULL), "") == 0);
  CHECK(strcmp(spar_error_name(SPAR_ERR_OTHER), "SPAR_ERR_OTHER") == 0);
  CHECK(strcmp(spar_error_name(11), "unknown") == 0 && strcmp(spar_error_name(-1), "unknown") == 0);
  OK(spar_comm_from_threads(1, &one));
  status = arguments(one);
  if (status == 0) status = error_feedback(one);
  if (status == 0) status = partial_reducers(one);
  if (status == 0) status = handles();
  if (status == 0) status = failures();
  if (status != 0) return status;
  OK(spar_comm_free(&one));
  FAILS(42, "the program of rank 1 returned 42", spar_run_threads(3, one_fails, NULL));
  OK(spar_run_threads(3, frees_itself, NULL));
  OK(spar_run_threads(3, fails_after_split, NULL));
  return 0;
}
