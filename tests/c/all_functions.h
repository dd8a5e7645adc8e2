// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Calls each function of the C interface on a communicator.
#pragma once

#include <spar/spar.h>

/// A program for spar_run_threads. `context` points to the expected number of ranks, an int. Returns 0 if all results
/// are right.
int all_functions(spar_comm comm, void* context);
