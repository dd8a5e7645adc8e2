/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Preloaded into a program that uses MPICH: yields the core whenever UCX has nothing to do, and keeps MPI_Finalize from
 * waiting for ranks that have exited.
 *
 * MPICH spins while it waits and has no option to yield. If there are more ranks than cores, each rank waits until the
 * time slices of other ranks end: milliseconds for a message of four bytes. Open MPI has mpi_yield_when_idle for this.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <stddef.h>

typedef unsigned progress_function(void* worker);

unsigned ucp_worker_progress(void* worker) {
  static progress_function* next;
  progress_function* progress = __atomic_load_n(&next, __ATOMIC_RELAXED);
  if (!progress) {
    progress = (progress_function*)dlsym(RTLD_NEXT, "ucp_worker_progress");
    __atomic_store_n(&next, progress, __ATOMIC_RELAXED);
  }
  unsigned done = progress(worker);
  if (!done) sched_yield();
  return done;
}

/* MPI_Finalize closes the connection to each rank and waits for the acknowledgement. Over TCP the peer may have exited
 * already, and MPICH 4.0 waits forever (6 of 15 runs on three hosts). All messages have arrived by then, so it is safe
 * to report the connection as closed at once. */
void* ucp_disconnect_nb(void* endpoint) {
  (void)endpoint;
  return NULL;
}
