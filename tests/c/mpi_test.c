// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Each function of the C interface over MPI, and what it refuses before MPI_Init and after MPI_Finalize.
#include "all_functions.h"
#include "check.h"

#include <spar/spar_mpi.h>

static int over_mpi(void) {
  spar_comm comm = NULL, other = NULL;
  int ranks = 0, provided = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "MPI_COMM_NULL", spar_comm_from_mpi(MPI_COMM_NULL, &comm));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'comm' is NULL", spar_comm_from_mpi(MPI_COMM_WORLD, NULL));
  OK(spar_comm_from_mpi(MPI_COMM_WORLD, &comm));
  OK(all_functions(comm, &ranks));
  MPI_Query_thread(&provided);
  if (provided != MPI_THREAD_MULTIPLE)
    FAILS(SPAR_ERR_INVALID_ARGUMENT, "needs MPI_THREAD_MULTIPLE", spar_comm_set_progress_thread(comm, 1));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "it is a rank of mpi", spar_comm_shrink(comm, &other));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "it is a rank of mpi", spar_comm_grow(comm, &other));
  OK(spar_comm_free(&comm));
  OK(spar_comm_from_mpi_fint(MPI_Comm_c2f(MPI_COMM_SELF), &comm));
  ranks = 1;
  OK(all_functions(comm, &ranks));
  OK(spar_comm_free(&comm));
  return 0;
}

static int after_finalize(spar_comm comm, spar_partial reduce, spar_stream stream) {
  double x[1] = {1};
  int rank = 0;
  spar_vector view;
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "MPI is finalised", spar_comm_rank(comm, &rank));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "MPI is finalised", spar_allreduce(comm, x, x, 1, SPAR_DOUBLE, SPAR_SUM, NULL));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "MPI is finalised", spar_partial_reduce(reduce, x, 1, NULL));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "MPI is finalised", spar_comm_from_mpi(MPI_COMM_WORLD, &comm));
  CHECK(comm == NULL);
  OK(spar_stream_view(stream, &view));
  OK(spar_stream_free(&stream));
  return 0;
}

int main(int argc, char** argv) {
  const uint32_t index = 3;
  const double value = 1;
  const spar_vector v = {
      .n = 9, .count = 1, .indices = &index, .values = &value, .index_bits = 32, .type = SPAR_DOUBLE};
  spar_comm comm = NULL, kept = NULL;
  spar_stream stream = NULL;
  spar_partial reduce = NULL;
  int status;
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "MPI is not initialised", spar_comm_from_mpi(MPI_COMM_WORLD, &comm));
  MPI_Init(&argc, &argv);
  status = over_mpi();
  OK(spar_comm_from_mpi(MPI_COMM_WORLD, &kept));
  OK(spar_allreduce_sparse(kept, &v, SPAR_SUM, NULL, &stream));
  OK(spar_partial_create(kept, 1, SPAR_DOUBLE, SPAR_SUM, "everyone", NULL, 64, &reduce));
  MPI_Finalize();
  return status != 0 ? status : after_finalize(kept, reduce, stream);
}
