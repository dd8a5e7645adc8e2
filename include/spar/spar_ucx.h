// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The C interface of spar over UCX: makes communicators of processes that need no MPI. Link libspar-ucx as well as
// libspar.
#pragma once

#include <spar/spar.h>

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Makes a communicator of the processes of a job: a collective call. A launcher says by variables of the environment
/// which rank a process is, how many there are, and where they meet: docs/guide/ranks.md. Waits for the others as many
/// seconds as the variable SPAR_DEADLINE says, or 300. Errors: SPAR_ERR_INVALID_ARGUMENT if a variable is missing or
/// malformed, or there is no such network interface; SPAR_ERR_TIMEOUT if rank 0 does not listen or ranks do not come in
/// time; SPAR_ERR_MISMATCH if ranks disagree on the job, their number, a rank, the secret or the version;
/// SPAR_ERR_TRANSPORT if rank 0 cannot listen, the process of rank 0 ends, or UCX fails.
int spar_comm_from_environment(spar_comm* comm);

/// Gives a value of a store, of `length` bytes, to `to`, which the function of the store got with it.
typedef void spar_store_answer(void* to, const void* value, int64_t length);

/// A store of the program's own, in which the processes of a job meet: values by key, of which the first of each key
/// stays. Both functions return 0 unless they fail, get `context`, and may be called while a communicator of this store
/// exists. A key is a text of letters, digits and '/'.
typedef struct spar_store {
  void* context;
  /// Keeps `value`, of `length` bytes, under `key` unless the key has a value. Passes the value that `key` has now to
  /// answer(to, ...), once.
  int (*put)(void* context, const char* key, const void* value, int64_t length, spar_store_answer* answer, void* to);
  /// Waits at most `seconds` for a value of `key`. Passes the value to answer(to, ...), once; if there is none by then,
  /// returns 0 without a call of `answer`.
  int (*wait)(void* context, const char* key, double seconds, spar_store_answer* answer, void* to);
} spar_store;

/// Makes a communicator of `ranks` processes that meet in `store`, of which this one is the rank `rank`: a collective
/// call. The structure is copied. Waits for the others at most 300 s. Errors: SPAR_ERR_INVALID_ARGUMENT if `rank` is
/// not in [0, `ranks`) or a function is NULL; SPAR_ERR_TIMEOUT if ranks do not come in time; SPAR_ERR_MISMATCH if ranks
/// disagree on their number, a rank or the version; SPAR_ERR_TRANSPORT if a function of the store or UCX fails.
int spar_comm_from_store(const spar_store* store, int rank, int ranks, spar_comm* comm);

/// Joins the processes of a job when they call `spar_comm_grow` next, and makes the communicator that they get, of
/// which this process is one of the last ranks. Reads the variables of `spar_comm_from_environment` but those that name
/// a rank. Waits as long as that function. Errors: SPAR_ERR_INVALID_ARGUMENT if a variable is missing or malformed;
/// SPAR_ERR_TIMEOUT if rank 0 does not listen or no rank calls `spar_comm_grow` in time; SPAR_ERR_MISMATCH if the job
/// has another identity, secret or version; SPAR_ERR_TRANSPORT if the job ends meanwhile, or UCX fails.
int spar_comm_join(spar_comm* comm);
/// The same for processes that meet in `store`, for at most 300 s.
int spar_comm_join_store(const spar_store* store, spar_comm* comm);

#ifdef __cplusplus
}
#endif
