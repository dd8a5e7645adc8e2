// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Each function of the C interface, with the numbers of ranks of the design, over threads.
#include "all_functions.h"
#include "check.h"

int main(void) {
  const int sizes[] = {1, 2, 3, 4, 5, 7, 8, 13};
  size_t i;
  CHECK(strcmp(spar_version(), "") != 0);
  for (i = 0; i < sizeof sizes / sizeof *sizes; ++i) {
    int ranks = sizes[i];
    OK(spar_run_threads(ranks, all_functions, &ranks));
  }
  return 0;
}
