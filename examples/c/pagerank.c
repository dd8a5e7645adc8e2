// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// PageRank in C: each rank owns a block of the pages, and sends what its pages give to others as sparse vectors, whose
// sums arrive at the owners. Compares the result with a serial computation. Runs over MPI if it is compiled with
// -DPAGERANK_WITH_MPI, otherwise over threads.
#ifdef PAGERANK_WITH_MPI
#include <spar/spar_mpi.h>
#else
#include <spar/spar.h>
#endif

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { pages = 20000, most_links = 10, threads = 4 };
static const double damping = 0.85, tolerance = 1e-12;

// The links of a page: a web of its own making, in which pages with small numbers are popular.
static int links_of(int64_t page, int64_t to[most_links]) {
  uint64_t state = (uint64_t)page * 2654435761U + 12345;
  int count, i;
  state = state * 6364136223846793005U + 1442695040888963407U;
  count = 1 + (int)((state >> 33) % most_links);
  for (i = 0; i < count; ++i) {
    double where;
    state = state * 6364136223846793005U + 1442695040888963407U;
    where = (double)(state >> 11) / 9007199254740992.0; // in [0, 1)
    to[i] = (int64_t)(where * where * where * pages);
  }
  return count;
}

// One step of a serial computation: rank = (1 - damping) / pages + damping * what the pages give.
static void serial_pagerank(double rank[pages]) {
  double* next = (double*)malloc(pages * sizeof *next);
  double change = 1;
  int64_t p, to[most_links];
  if (next == NULL) exit(1);
  for (p = 0; p < pages; ++p) rank[p] = 0;
  while (change > tolerance) {
    for (p = 0; p < pages; ++p) next[p] = (1 - damping) / pages;
    for (p = 0; p < pages; ++p) {
      const int count = links_of(p, to);
      int i;
      for (i = 0; i < count; ++i) next[to[i]] += damping * rank[p] / count;
    }
    change = 0;
    for (p = 0; p < pages; ++p) {
      change = fmax(change, fabs(next[p] - rank[p]));
      rank[p] = next[p];
    }
  }
  free(next);
}

// Ends the function with the code of a call that fails.
#define CHECK(call)                                                                                                    \
  do {                                                                                                                 \
    status = (call);                                                                                                   \
    if (status != SPAR_SUCCESS) goto end;                                                                              \
  } while (0)

// Pages pass on only what has changed, so the vectors become sparser from step to step. `rank` has all pages, of which
// this rank computes its block; `fresh` is what the pages of the block have received, and not yet passed on.
static int distributed_pagerank(spar_comm comm, double rank[pages], double fresh[pages], int* steps) {
  int64_t* indices = (int64_t*)malloc(pages * most_links * sizeof *indices);
  double* values = (double*)malloc(pages * most_links * sizeof *values);
  int64_t begin, end, p, i, to[most_links];
  spar_stream given = NULL, received = NULL;
  spar_vector entries = {.n = pages, .index_bits = 64, .type = SPAR_DOUBLE}, view;
  int status, me, ranks;
  double most = 1;
  if (indices == NULL || values == NULL) exit(1);
  CHECK(spar_comm_rank(comm, &me));
  CHECK(spar_comm_size(comm, &ranks));
  CHECK(spar_block(pages, ranks, me, &begin, &end));
  for (p = begin; p < end; ++p) fresh[p] = (1 - damping) / pages;
  for (*steps = 0; most > tolerance / 10; ++*steps) {
    int64_t count = 0;
    for (p = begin; p < end; ++p) {
      const double share = fresh[p];
      if (share <= tolerance / 100) continue;
      rank[p] += share;
      fresh[p] = 0;
      {
        const int links = links_of(p, to);
        for (i = 0; i < links; ++i, ++count) {
          indices[count] = to[i];
          values[count] = damping * share / links;
        }
      }
    }
    entries.count = count;
    entries.indices = indices;
    entries.values = values;
    CHECK(spar_coalesce(&entries, SPAR_SUM, &given)); // sorts the entries, and adds those of the same page
    CHECK(spar_stream_view(given, &view));
    CHECK(spar_reduce_scatter_sparse(comm, &view, SPAR_SUM, NULL, &received)); // the sums of this rank's block
    CHECK(spar_stream_view(received, &view));
    most = 0;
    for (i = 0; i < view.count; ++i) {
      const int64_t page = view.indices != NULL ? ((const int64_t*)view.indices)[i] : view.first + i;
      fresh[page] += ((const double*)view.values)[i];
      most = fmax(most, fresh[page]);
    }
    CHECK(spar_stream_free(&given));
    CHECK(spar_stream_free(&received));
    CHECK(spar_allreduce(comm, &most, &most, 1, SPAR_DOUBLE, SPAR_MAX, NULL));
  }
  CHECK(spar_allgather(comm, rank, pages, SPAR_DOUBLE));
end:
  spar_stream_free(&given);
  spar_stream_free(&received);
  free(indices);
  free(values);
  return status;
}

// The program of each rank.
static int run(spar_comm comm, void* context) {
  double* rank = (double*)calloc(pages, sizeof *rank);
  double* fresh = (double*)calloc(pages, sizeof *fresh);
  double* expected = (double*)malloc(pages * sizeof *expected);
  int status, me = 0, steps = 0;
  (void)context;
  if (rank == NULL || fresh == NULL || expected == NULL) exit(1);
  CHECK(spar_comm_rank(comm, &me));
  CHECK(distributed_pagerank(comm, rank, fresh, &steps));
  if (me == 0) {
    double difference = 0;
    int64_t p;
    serial_pagerank(expected);
    for (p = 0; p < pages; ++p) difference = fmax(difference, fabs(rank[p] - expected[p]));
    printf("%d steps; the first page has rank %.6f; largest difference from the serial result: %.1e\n", steps, rank[0],
           difference);
    if (difference > 1e-8) status = 1;
  }
end:
  if (status != SPAR_SUCCESS) fprintf(stderr, "rank %d: %s\n", me, spar_error_text(comm));
  free(rank);
  free(fresh);
  free(expected);
  return status;
}

#ifdef PAGERANK_WITH_MPI

int main(int argc, char** argv) {
  spar_comm world = NULL;
  int status;
  MPI_Init(&argc, &argv);
  status = spar_comm_from_mpi(MPI_COMM_WORLD, &world);
  if (status == SPAR_SUCCESS) status = run(world, NULL);
  spar_comm_free(&world);
  MPI_Finalize();
  return status;
}

#else

int main(void) { return spar_run_threads(threads, run, NULL); }

#endif
