// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Calls each function of the C interface on a communicator.
#include "all_functions.h"

#include "check.h"

#include <stdlib.h>

static int values_of_all(spar_comm comm, int rank, int ranks) {
  double x[3] = {1, rank, -rank}, out[3];
  int64_t most[2] = {rank, -rank};
  const double sum = ranks * (ranks - 1) / 2;
  spar_request request = NULL;
  OK(spar_allreduce(comm, x, out, 3, SPAR_DOUBLE, SPAR_SUM, NULL));
  CHECK(out[0] == ranks && out[1] == sum && out[2] == -sum);
  CHECK(x[1] == rank);
  OK(spar_allreduce(comm, x, x, 3, SPAR_DOUBLE, SPAR_AVERAGE, "ring"));
  CHECK(x[0] == 1 && x[1] == sum / ranks);
  OK(spar_allreduce(comm, most, most, 2, SPAR_INT64, SPAR_MAX, NULL));
  CHECK(most[0] == ranks - 1 && most[1] == 0);
  OK(spar_allreduce(comm, NULL, NULL, 0, SPAR_FLOAT, SPAR_SUM, NULL));
  OK(spar_barrier(comm));
  OK(spar_start_barrier(comm, &request));
  OK(spar_wait(&request));
  return 0;
}

// The sum of the squares, with the neutral element 0: (a, b) -> a + b on values that a rank has squared.
typedef struct counter {
  int64_t values;
} counter;
static void add(const void* in, void* inout, int64_t count, void* context) {
  const int32_t* a = (const int32_t*)in;
  int32_t* b = (int32_t*)inout;
  int64_t i;
  for (i = 0; i < count; ++i) b[i] += a[i];
  ((counter*)context)->values += count;
}

static int own_operation(spar_comm comm, int rank, int ranks) {
  counter calls = {0};
  const int32_t zero = 0;
  int32_t x[5] = {1, 2, 3, 4, 5};
  spar_op op = 0;
  (void)rank;
  OK(spar_op_create(SPAR_INT32, "add", add, &calls, &zero, &op));
  OK(spar_allreduce(comm, x, x, 5, SPAR_INT32, op, NULL));
  CHECK(x[0] == ranks && x[4] == 5 * ranks);
  OK(spar_allreduce(comm, &calls.values, &calls.values, 1, SPAR_INT64, SPAR_SUM, NULL));
  CHECK(ranks == 1 || calls.values > 0);
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'add'", spar_allreduce(comm, x, x, 5, SPAR_FLOAT, op, NULL));
  OK(spar_op_free(&op));
  CHECK(op == 0);
  OK(spar_op_free(&op));
  return 0;
}

static int streams(spar_comm comm, int rank, int ranks) {
  const uint32_t indices[2] = {7, 100 + (uint32_t)rank};
  const float values[2] = {1, 2};
  const spar_vector mine = {
      .n = 1000, .count = 2, .indices = indices, .values = values, .index_bits = 32, .type = SPAR_FLOAT};
  spar_stream sum = NULL;
  spar_gathered all = NULL;
  spar_vector view;
  float dense[1000];
  int r;
  OK(spar_allreduce_sparse(comm, &mine, SPAR_SUM, NULL, &sum));
  OK(spar_stream_view(sum, &view));
  CHECK(view.n == 1000 && view.type == SPAR_FLOAT && view.index_bits == 32);
  CHECK(view.count == 1 + ranks && view.indices != NULL);
  CHECK(((const uint32_t*)view.indices)[0] == 7 && ((const float*)view.values)[0] == (float)ranks);
  OK(spar_stream_to_dense(sum, dense, 1000));
  CHECK(dense[7] == (float)ranks && dense[100 + rank] == 2 && dense[0] == 0);
  OK(spar_stream_free(&sum));
  CHECK(sum == NULL);

  OK(spar_reduce_scatter_sparse(comm, &mine, SPAR_SUM, NULL, &sum));
  OK(spar_stream_view(sum, &view));
  if (rank == 0) CHECK(view.count >= 1 && ((const float*)view.values)[0] == (float)ranks);
  OK(spar_stream_free(&sum));

  OK(spar_allgather_sparse(comm, &mine, &all));
  for (r = 0; r < ranks; ++r) {
    OK(spar_gathered_view(all, r, &view));
    CHECK(view.count == 2 && ((const uint32_t*)view.indices)[1] == 100 + (uint32_t)r);
  }
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'rank'", spar_gathered_view(all, ranks, &view));
  OK(spar_gathered_free(&all));
  return 0;
}

static int coalesced(spar_comm comm, int rank, int ranks) {
  const int64_t indices[5] = {9, 2, 9, 0, 2};
  const double values[5] = {1, 2, 3, 4, 5};
  const spar_vector entries = {
      .n = 10, .count = 5, .indices = indices, .values = values, .index_bits = 64, .type = SPAR_DOUBLE};
  spar_stream mine = NULL, sum = NULL;
  spar_vector view;
  (void)rank;
  OK(spar_coalesce(&entries, SPAR_SUM, &mine));
  OK(spar_stream_view(mine, &view));
  CHECK(view.count == 3 && ((const int64_t*)view.indices)[1] == 2 && ((const double*)view.values)[1] == 7);
  OK(spar_allreduce_sparse(comm, &view, SPAR_SUM, NULL, &sum));
  OK(spar_stream_free(&mine));
  {
    double dense[10];
    OK(spar_stream_to_dense(sum, dense, 10));
    CHECK(dense[0] == 4 * ranks && dense[2] == 7 * ranks && dense[9] == 4 * ranks && dense[1] == 0);
  }
  OK(spar_stream_free(&sum));
  return 0;
}

static int blocks(spar_comm comm, int rank, int ranks) {
  const int64_t n = 2 * ranks + 1;
  int32_t* x = (int32_t*)calloc((size_t)n, sizeof *x);
  int64_t* bounds = (int64_t*)calloc((size_t)ranks + 1, sizeof *bounds);
  int64_t begin, end, i;
  CHECK(x != NULL && bounds != NULL);
  OK(spar_block(n, ranks, rank, &begin, &end));
  for (i = begin; i < end; ++i) x[i] = (int32_t)(i + 1);
  OK(spar_allgather(comm, x, n, SPAR_INT32));
  for (i = 0; i < n; ++i) CHECK(x[i] == i + 1);
  OK(spar_reduce_scatter(comm, x, n, SPAR_INT32, SPAR_SUM, NULL));
  for (i = begin; i < end; ++i) CHECK(x[i] == (i + 1) * ranks);
  for (i = 0; i < n; ++i) x[i] = 3;
  for (i = 1; i <= ranks; ++i) bounds[i] = n; // rank 0 gets everything
  OK(spar_reduce_scatter(comm, x, n, SPAR_INT32, SPAR_AVERAGE, bounds));
  for (i = 0; rank == 0 && i < n; ++i) CHECK(x[i] == 3);
  x[0] = rank;
  OK(spar_broadcast(comm, x, 1, SPAR_INT32, ranks - 1));
  CHECK(x[0] == ranks - 1);
  free(x);
  free(bounds);
  return 0;
}

static int requests(spar_comm comm, int rank, int ranks) {
  float a[4] = {1, 2, 3, 4}, b[4], c[1] = {(float)rank};
  const uint64_t index = 5;
  const int64_t one = 1;
  const spar_vector mine = {
      .n = INT64_C(1) << 40, .count = 1, .indices = &index, .values = &one, .index_bits = 64, .type = SPAR_INT64};
  spar_request calls[6] = {NULL};
  spar_stream sum = NULL, block = NULL;
  spar_gathered all = NULL;
  spar_vector view;
  spar_statistics statistics;
  int done = 0, i;
  OK(spar_start_allreduce(comm, a, b, 4, SPAR_FLOAT, SPAR_SUM, NULL, &calls[0]));
  OK(spar_start_allreduce_sparse(comm, &mine, SPAR_SUM, NULL, &sum, &calls[1]));
  OK(spar_start_broadcast(comm, c, 1, SPAR_FLOAT, 0, &calls[2]));
  OK(spar_start_allgather_sparse(comm, &mine, &all, &calls[3]));
  OK(spar_start_reduce_scatter_sparse(comm, &mine, SPAR_SUM, NULL, &block, &calls[4]));
  OK(spar_start_allreduce(comm, a, a, 4, SPAR_FLOAT, SPAR_MIN, NULL, &calls[5]));
  while (!done) OK(spar_test(calls[0], &done));
  OK(spar_comm_progress(comm));
  CHECK(sum == NULL);
  for (i = 5; i >= 0; --i) OK(spar_wait(&calls[i]));
  CHECK(calls[1] == NULL && b[3] == 4 * (float)ranks && c[0] == 0 && a[3] == 4);
  OK(spar_stream_view(sum, &view));
  CHECK(view.n == mine.n && view.count == 1 && *(const int64_t*)view.values == ranks);
  OK(spar_gathered_view(all, ranks - 1, &view));
  CHECK(view.count == 1);
  OK(spar_stream_free(&sum));
  OK(spar_stream_free(&block));
  OK(spar_gathered_free(&all));
  OK(spar_comm_last_call(comm, &statistics));
  CHECK(ranks == 1 || statistics.messages_sent + statistics.messages_received > 0);
  OK(spar_start_allreduce(comm, a, b, 4, SPAR_FLOAT, SPAR_SUM, NULL, &calls[0]));
  OK(spar_request_free(&calls[0])); // waits
  CHECK(calls[0] == NULL);
  return 0;
}

// Rank 0 calls too early: the others wait for its barrier on another communicator.
static int waits_with_limit(spar_comm comm, int rank, int ranks) {
  spar_comm twin = NULL;
  spar_request request = NULL;
  int32_t one = 1;
  int done = 1;
  OK(spar_comm_split(comm, 0, rank, &twin));
  if (rank > 0) OK(spar_barrier(twin));
  OK(spar_start_allreduce(comm, &one, &one, 1, SPAR_INT32, SPAR_SUM, NULL, &request));
  if (rank == 0) {
    OK(spar_wait_for(request, 0.01, &done));
    CHECK(done == (ranks == 1));
    OK(spar_wait_for(request, 0, &done));
    FAILS(SPAR_ERR_INVALID_ARGUMENT, "the time to wait is -1", spar_wait_for(request, -1, &done));
    OK(spar_barrier(twin));
  }
  OK(spar_wait_for(request, 600, &done));
  CHECK(done);
  OK(spar_wait(&request));
  CHECK(one == ranks);
  OK(spar_comm_free(&twin));
  return 0;
}

static int parts(spar_comm comm, int rank, int ranks) {
  spar_comm half = NULL;
  int size = 0, number = -1, deep = 0;
  int32_t one = 1;
  OK(spar_comm_split(comm, rank % 2, -rank, &half)); // in descending order of the ranks
  OK(spar_comm_size(half, &size));
  OK(spar_comm_rank(half, &number));
  CHECK(size == (rank % 2 == 0 ? (ranks + 1) / 2 : ranks / 2));
  CHECK(number == size - 1 - rank / 2);
  OK(spar_allreduce(half, &one, &one, 1, SPAR_INT32, SPAR_SUM, NULL));
  CHECK(one == size);
  OK(spar_comm_split(half, 0, 0, &comm));
  OK(spar_comm_size(comm, &deep));
  CHECK(deep == size);
  OK(spar_comm_free(&half));
  OK(spar_barrier(comm));
  OK(spar_comm_free(&comm));
  return 0;
}

// Compositions over the tree of the hosts.
static int trees(spar_comm comm, int rank, int ranks) {
  int* hosts = (int*)calloc((size_t)ranks, sizeof *hosts);
  float x[5] = {1, 2, 3, 4, 5}, all[5] = {0};
  const uint32_t index = 4;
  const spar_vector mine = {.n = 5, .count = 1, .indices = &index, .values = x, .index_bits = 32, .type = SPAR_FLOAT};
  spar_feedback reduce = NULL;
  spar_stream sum = NULL;
  spar_comm part = NULL;
  int i;
  CHECK(hosts != NULL);
  OK(spar_allreduce(comm, x, all, 5, SPAR_FLOAT, SPAR_SUM, "flexreduce")); // on the hosts that spar knows
  CHECK(all[0] == (float)ranks && all[4] == (float)(5 * ranks));
  for (i = 0; i < ranks; ++i) hosts[i] = -(i / 2);
  OK(spar_comm_set_hosts(comm, hosts));
  free(hosts);
  for (i = 0; i < 2; ++i) {
    OK(spar_allreduce(comm, x, all, 5, SPAR_FLOAT, SPAR_SUM, "tree_dense"));
    CHECK(all[0] == (float)ranks && all[4] == (float)(5 * ranks));
  }
  OK(spar_allreduce_sparse(comm, &mine, SPAR_SUM, "tree_sparcml", &sum));
  OK(spar_stream_to_dense(sum, all, 5));
  CHECK(all[0] == 0 && all[4] == (float)ranks);
  OK(spar_stream_free(&sum));
  OK(spar_feedback_create(comm, SPAR_FLOAT, 32, "tree_ok_topk:k=1", &reduce));
  OK(spar_feedback_reduce(reduce, comm, x, 5, SPAR_SUM));
  CHECK(x[0] == 0 && x[4] == (float)(5 * ranks));
  OK(spar_feedback_free(&reduce));
  OK(spar_comm_split(comm, rank / 3, 0, &part));
  OK(spar_allreduce(part, all, all, 5, SPAR_FLOAT, SPAR_MAX, "flexreduce"));
  CHECK(all[4] == (float)ranks);
  OK(spar_comm_free(&part));
  return 0;
}

// Over a slow network, the composition encodes the entries that it sends as they are over a fast one.
static int network(spar_comm comm, int rank, int ranks) {
  enum { n = 1 << 20, count = 1 << 13 };
  uint32_t* indices = (uint32_t*)calloc(count, sizeof *indices);
  float* values = (float*)calloc(count, sizeof *values);
  const spar_vector mine = {
      .n = n, .count = count, .indices = indices, .values = values, .index_bits = 32, .type = SPAR_FLOAT};
  spar_stream sum = NULL;
  spar_statistics sent[2];
  int i;
  CHECK(indices != NULL && values != NULL);
  for (i = 0; i < count; ++i) indices[i] = (uint32_t)(i * (n / count) + rank);
  for (i = 0; i < 2; ++i) {
    OK(spar_comm_set_network(comm, 1e-6, i == 0 ? 1e-10 : 1e-7));
    OK(spar_allreduce_sparse(comm, &mine, SPAR_SUM, "sparcml+coded", &sum));
    OK(spar_comm_last_call(comm, &sent[i]));
    OK(spar_stream_free(&sum));
  }
  OK(spar_comm_set_network(comm, 1e-6, 1e-10));
  CHECK(sent[0].bytes_sent == sent[0].plain_bytes_sent);
  CHECK(ranks == 1 || sent[1].bytes_sent < sent[0].bytes_sent);
  free(indices);
  free(values);
  return 0;
}

static int feedback(spar_comm comm, int rank, int ranks) {
  enum { n = 64 };
  spar_feedback reduce = NULL, again = NULL;
  spar_stream sum = NULL;
  spar_request request = NULL;
  spar_vector view;
  float x[n], y[n];
  const void* residual = NULL;
  int64_t length = -1, bytes = 0;
  char* saved;
  int i;
  for (i = 0; i < n; ++i) x[i] = (float)(i + 1);
  (void)rank;
  OK(spar_feedback_create(comm, SPAR_FLOAT, 32, "topka:k=1", &reduce));
  OK(spar_feedback_residual(reduce, &residual, &length));
  CHECK(length == 0);
  OK(spar_feedback_reduce_sparse(reduce, comm, x, n, SPAR_SUM, &sum));
  OK(spar_stream_view(sum, &view));
  CHECK(view.count == 1 && *(const uint32_t*)view.indices == n - 1 && *(const float*)view.values == (float)(n * ranks));
  OK(spar_stream_free(&sum));
  OK(spar_feedback_residual(reduce, &residual, &length));
  CHECK(length == n && ((const float*)residual)[n - 1] == 0 && ((const float*)residual)[0] == 1);
  OK(spar_feedback_saved_size(reduce, &bytes));
  saved = (char*)malloc((size_t)bytes);
  CHECK(saved != NULL);
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'bytes'", spar_feedback_save(reduce, saved, bytes - 1));
  OK(spar_feedback_save(reduce, saved, bytes));
  memcpy(y, x, sizeof y);
  OK(spar_feedback_reduce(reduce, comm, x, n, SPAR_AVERAGE));
  CHECK(x[n - 2] == 2 * (n - 1) && x[n - 1] == 0);

  OK(spar_feedback_create(comm, SPAR_FLOAT, 32, "topka:k=1", &again));
  OK(spar_feedback_load(again, saved, bytes));
  OK(spar_start_feedback_reduce(again, comm, y, n, SPAR_AVERAGE, &request));
  OK(spar_feedback_free(&again)); // the call is in flight
  OK(spar_wait(&request));
  CHECK(memcmp(x, y, sizeof x) == 0);
  OK(spar_feedback_create(comm, SPAR_FLOAT, 32, "topka:k=1", &again));
  OK(spar_feedback_take_over(again, saved, bytes));
  OK(spar_feedback_take_over(again, saved, bytes));
  OK(spar_feedback_residual(again, &residual, &length));
  CHECK(length == n && ((const float*)residual)[n - 1] == 0 && ((const float*)residual)[0] == 2);
  OK(spar_feedback_free(&again));
  saved[bytes / 2] = (char)(saved[bytes / 2] + 1);
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "damaged", spar_feedback_load(reduce, saved, bytes));
  free(saved);
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "SPAR_AVERAGE", spar_feedback_reduce(reduce, comm, x, n, SPAR_MAX));
  OK(spar_start_feedback_reduce_sparse(reduce, comm, x, n, SPAR_SUM, &sum, &request));
  OK(spar_wait(&request));
  OK(spar_stream_free(&sum));
  OK(spar_feedback_free(&reduce));
  return 0;
}

static int partial(spar_comm comm, int rank, int ranks) {
  const char* const who[] = {"everyone", "solo", "majority", "quorum:1"};
  spar_partial reduce = NULL;
  spar_request request = NULL;
  double x[3], total = 0;
  int presence[16], kind, round, r;
  for (kind = 0; kind < 4; ++kind) {
    OK(spar_partial_create(comm, 3, SPAR_DOUBLE, SPAR_SUM, who[kind], kind == 0 ? "flexreduce" : NULL, 64, &reduce));
    total = 0;
    for (round = 0; round < 4; ++round) {
      x[0] = x[1] = x[2] = 1;
      if (round % 2 == 0) {
        OK(spar_partial_reduce(reduce, x, 3, presence));
      } else {
        OK(spar_start_partial_reduce(reduce, x, 3, presence, &request));
        OK(spar_wait(&request));
      }
      for (r = 0; r < ranks; ++r) CHECK(presence[r] >= SPAR_ABSENT && presence[r] <= SPAR_FRESH);
      total += x[rank % 3];
    }
    OK(spar_partial_drain(reduce, x, 3, NULL));
    total += x[0];
    CHECK(total == 4 * ranks);
    FAILS(SPAR_ERR_INVALID_ARGUMENT, "drained", spar_partial_reduce(reduce, x, 3, NULL));
    OK(spar_partial_free(&reduce));
  }
  return 0;
}

// The last rank makes its call only after the others have the result of theirs.
static int late_rank(spar_comm comm, int rank, int ranks) {
  spar_comm twin = NULL, served = NULL;
  spar_partial reduce = NULL;
  spar_request request = NULL;
  float x[2] = {1, 2}, rest[2] = {0, 0};
  int presence[16];
  OK(spar_comm_split(comm, 0, rank, &served));
  if (spar_comm_set_progress_thread(served, 1) != SPAR_SUCCESS) { // over MPI without threads
    CHECK(strstr(spar_error_text(served), "MPI_THREAD_MULTIPLE") != NULL);
    OK(spar_comm_free(&served));
    return 0;
  }
  OK(spar_comm_split(comm, 0, rank, &twin));
  OK(spar_comm_set_progress_thread(served, 1)); // has one already
  OK(spar_partial_create(served, 2, SPAR_FLOAT, SPAR_SUM, "solo", NULL, 64, &reduce));
  if (rank == ranks - 1) OK(spar_barrier(twin));
  OK(spar_partial_reduce(reduce, x, 2, presence));
  if (rank != ranks - 1) OK(spar_barrier(twin));
  CHECK(presence[ranks - 1] == (ranks == 1 ? SPAR_FRESH : SPAR_ABSENT));
  OK(spar_start_partial_drain(reduce, rest, 2, presence, &request));
  OK(spar_wait(&request));
  CHECK(presence[ranks - 1] == (ranks == 1 ? SPAR_ABSENT : SPAR_STALE));
  CHECK(x[0] + rest[0] == (float)ranks && x[1] + rest[1] == 2 * (float)ranks);
  OK(spar_partial_free(&reduce));
  OK(spar_comm_set_progress_thread(served, 0));
  OK(spar_allreduce(served, x, x, 2, SPAR_FLOAT, SPAR_MAX, NULL));
  OK(spar_comm_set_progress_thread(served, 1));
  OK(spar_allreduce(served, x, x, 2, SPAR_FLOAT, SPAR_MAX, NULL));
  OK(spar_comm_free(&served)); // stops the thread
  OK(spar_comm_free(&twin));
  return 0;
}

int all_functions(spar_comm comm, void* context) {
  typedef int part(spar_comm comm, int rank, int ranks);
  part* const all[] = {values_of_all, own_operation, streams, coalesced, blocks,  requests, waits_with_limit,
                       parts,         trees,         network, feedback,  partial, late_rank};
  const int* expected = (const int*)context;
  int rank = -1, ranks = -1;
  size_t i;
  OK(spar_comm_rank(comm, &rank));
  OK(spar_comm_size(comm, &ranks));
  CHECK(ranks == *expected && rank >= 0 && rank < ranks);
  for (i = 0; i < sizeof all / sizeof *all; ++i) {
    const int status = all[i](comm, rank, ranks);
    if (status != 0) return status;
  }
  return 0;
}
