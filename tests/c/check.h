// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Checks for tests in C: a function that returns an int ends with 100 where a check fails.
#pragma once

#include <spar/spar.h>

#include <stdio.h>
#include <string.h>

#define CHECK(condition)                                                                                               \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                          \
      return 100;                                                                                                      \
    }                                                                                                                  \
  } while (0)

/// The call succeeds.
#define OK(call)                                                                                                       \
  do {                                                                                                                 \
    const int status_ = (call);                                                                                        \
    if (status_ != SPAR_SUCCESS) {                                                                                     \
      fprintf(stderr, "%s:%d: %s: %s: %s\n", __FILE__, __LINE__, #call, spar_error_name(status_),                      \
              spar_error_text(NULL));                                                                                  \
      return 100;                                                                                                      \
    }                                                                                                                  \
  } while (0)

/// The call fails with this code and with a sentence that contains `part`.
#define FAILS(code, part, call)                                                                                        \
  do {                                                                                                                 \
    const int status_ = (call);                                                                                        \
    if (status_ != (code) || strstr(spar_error_text(NULL), part) == NULL) {                                            \
      fprintf(stderr, "%s:%d: %s: got %s, '%s'; expected %s with '%s'\n", __FILE__, __LINE__, #call,                   \
              spar_error_name(status_), spar_error_text(NULL), spar_error_name(code), part);                           \
      return 100;                                                                                                      \
    }                                                                                                                  \
  } while (0)
