// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Each function of the C interface over UCX, between processes that a launcher starts, and between two threads that
// meet in a store of the program's own.
#define _POSIX_C_SOURCE 200809L
#include "all_functions.h"
#include "check.h"

#include <spar/spar_ucx.h>

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { most_texts = 256, longest_key = 64, longest_text = 2048 };

struct texts {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int count;
  char keys[most_texts][longest_key];
  char values[most_texts][longest_text];
  int64_t lengths[most_texts];
};

static struct texts shared = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
static struct texts unshared = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static int find(const struct texts* in, const char* key) {
  int i;
  for (i = 0; i < in->count && strcmp(in->keys[i], key) != 0; ++i) continue;
  return i;
}

static int put(void* context, const char* key, const void* value, int64_t length, spar_store_answer* answer, void* to) {
  struct texts* own = context;
  int at;
  pthread_mutex_lock(&own->mutex);
  at = find(own, key);
  if (at == own->count) {
    if (at == most_texts || strlen(key) >= longest_key || length > longest_text) {
      pthread_mutex_unlock(&own->mutex);
      return 28;
    }
    strcpy(own->keys[at], key);
    memcpy(own->values[at], value, (size_t)length);
    own->lengths[at] = length;
    ++own->count;
    pthread_cond_broadcast(&own->changed);
  }
  answer(to, own->values[at], own->lengths[at]);
  pthread_mutex_unlock(&own->mutex);
  return 0;
}

static int wait_for(void* context, const char* key, double seconds, spar_store_answer* answer, void* to) {
  struct texts* own = context;
  struct timespec until;
  int at, late = 0;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += (time_t)seconds;
  pthread_mutex_lock(&own->mutex);
  while ((at = find(own, key)) == own->count && !late)
    late = pthread_cond_timedwait(&own->changed, &own->mutex, &until) != 0;
  if (at < own->count) answer(to, own->values[at], own->lengths[at]);
  pthread_mutex_unlock(&own->mutex);
  return 0;
}

static int fails(void* context, const char* key, const void* value, int64_t length, spar_store_answer* answer,
                 void* to) {
  (void)context, (void)key, (void)value, (void)length, (void)answer, (void)to;
  return 5;
}

static int says_nothing(void* context, const char* key, const void* value, int64_t length, spar_store_answer* answer,
                        void* to) {
  (void)context, (void)key, (void)value, (void)length, (void)answer, (void)to;
  return 0;
}

static int answers_a_negative_length(void* context, const char* key, const void* value, int64_t length,
                                     spar_store_answer* answer, void* to) {
  (void)context, (void)key, (void)length;
  answer(to, value, -1);
  return 0;
}

static int answers_null(void* context, const char* key, double seconds, spar_store_answer* answer, void* to) {
  (void)context, (void)key, (void)seconds;
  answer(to, NULL, 3);
  return 0;
}

static int rank_in_store(int rank) {
  const spar_store store = {.context = &shared, .put = put, .wait = wait_for};
  spar_comm comm = NULL;
  int ranks = 2;
  OK(spar_comm_from_store(&store, rank, ranks, &comm));
  OK(all_functions(comm, &ranks));
  OK(spar_comm_free(&comm));
  return 0;
}

static void* second_rank(void* status) {
  *(int*)status = rank_in_store(1);
  return NULL;
}

static int in_own_store(void) {
  pthread_t second;
  int of_second = -1, of_first;
  CHECK(pthread_create(&second, NULL, second_rank, &of_second) == 0);
  of_first = rank_in_store(0);
  CHECK(pthread_join(second, NULL) == 0);
  return of_first != 0 ? of_first : of_second;
}

static void* join(void* status) {
  const spar_store store = {.context = &shared, .put = put, .wait = wait_for};
  spar_comm comm = NULL;
  int ranks = 2;
  *(int*)status = spar_comm_join_store(&store, &comm) == SPAR_SUCCESS ? all_functions(comm, &ranks) : 101;
  return spar_comm_free(&comm) == SPAR_SUCCESS ? NULL : status;
}

/* A thread joins a communicator of one rank. */
static int grow_in_own_store(void) {
  const spar_store store = {.context = &shared, .put = put, .wait = wait_for};
  spar_comm comm = NULL, wider = NULL;
  pthread_t second;
  int of_second = -1, ranks = 2;
  shared.count = 0; /* nobody uses it any more */
  OK(spar_comm_from_store(&store, 0, 1, &comm));
  OK(spar_comm_grow(comm, &wider));
  CHECK(wider == NULL);
  CHECK(pthread_create(&second, NULL, join, &of_second) == 0);
  while (wider == NULL) OK(spar_comm_grow(comm, &wider));
  OK(all_functions(wider, &ranks));
  CHECK(pthread_join(second, NULL) == 0);
  OK(spar_comm_free(&wider));
  OK(spar_comm_free(&comm));
  return of_second;
}

static int refused(void) {
  spar_store store = {.context = &unshared, .put = put, .wait = wait_for};
  spar_comm comm = NULL;
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'comm' is NULL", spar_comm_from_store(&store, 0, 1, NULL));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'store' is NULL", spar_comm_from_store(NULL, 0, 1, &comm));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'store' is NULL", spar_comm_join_store(NULL, &comm));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'comm' is NULL", spar_comm_join(NULL));
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "2", spar_comm_from_store(&store, 2, 2, &comm));
  store.put = NULL;
  FAILS(SPAR_ERR_INVALID_ARGUMENT, "'put' of 'store' is NULL", spar_comm_from_store(&store, 0, 1, &comm));
  store.put = fails;
  FAILS(SPAR_ERR_TRANSPORT, "'put' of the store has returned 5", spar_comm_from_store(&store, 0, 1, &comm));
  store.put = says_nothing;
  FAILS(SPAR_ERR_TRANSPORT, "has passed no value", spar_comm_from_store(&store, 0, 1, &comm));
  store.put = answers_a_negative_length;
  FAILS(SPAR_ERR_TRANSPORT, "has passed -1 bytes", spar_comm_from_store(&store, 0, 1, &comm));
  store.put = put;
  store.wait = answers_null;
  FAILS(SPAR_ERR_TRANSPORT, "has passed 3 bytes at NULL", spar_comm_from_store(&store, 0, 1, &comm));
  CHECK(comm == NULL);
  return 0;
}

int main(void) {
  spar_comm comm = NULL;
  int ranks = atoi(getenv("WORLD_SIZE")), status;
  OK(spar_comm_from_environment(&comm));
  OK(all_functions(comm, &ranks));
  OK(spar_comm_free(&comm));
  status = refused();
  if (status == 0) status = in_own_store();
  return status != 0 ? status : grow_in_own_store();
}
