// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Measures the library's own policies alone; scripts/perf adds others.
#include "../kernels.hpp"

#include <spar/selector/exact_topk.hpp>
#include <spar/storage/short_float.hpp>
#include <spar/storage/storage.hpp>

int main(int argc, char** argv) {
  spar::perf::register_selector<spar::selector::exact_topk>("exact_topk", {.density = 0.01});
  spar::perf::register_storage("coo", spar::storage::coo{});
  spar::perf::register_storage("bfloat16", spar::storage::as_bfloat16{});
  spar::perf::register_merge<spar::sum>();
  return spar::perf::run_kernels(argc, argv);
}
