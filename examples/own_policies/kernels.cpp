// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Measures user-defined policies alone, beside the library's; has the options of Google Benchmark.
#include "policies.hpp"

#include <spar_perf/kernels.hpp>

int main(int argc, char** argv) {
  spar::perf::register_selector("at_least", own::at_least{.threshold = 2.5F});
  spar::perf::register_storage<own::truncated>(1.0 / 128);
  spar::perf::register_merge<spar::maximum>();
  return spar::perf::run_kernels(argc, argv);
}
