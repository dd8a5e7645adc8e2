// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// spar_perf_gpu: spar_perf that also measures values in device memory. Compile with nvcc.
#include "count_device_calls.hpp"
#include "device_systems.cuh"
#include "suite.hpp"

#include <memory>

#ifdef SPAR_WITH_MPI
using transport = spar::mpi;
#else
using transport = spar::threads;
#endif

int main(int argc, char** argv) {
  return spar::perf::suite().add_device(std::make_shared<spar::perf::device_systems<transport>>()).run(argc, argv);
}
