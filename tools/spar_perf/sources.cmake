# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# The sources of spar_perf's libraries, for spar's own build and for projects that find an installed spar.

# What does not depend on the types of values.
set(spar_perf_common_sources
    calibrate.cpp
    calibrate_ranks.cpp
    exact.cpp
    interrupt.cpp
    machine.cpp
    options.cpp
    partial_name.cpp
    patterns.cpp
    progress.cpp
    report.cpp
    skew.cpp
    system_names.cpp
    topology.cpp
    units.cpp
    verdict.cpp)
# All systems, compiled once for all transports.
set(spar_perf_types_sources measurement.cpp typed_double.cpp typed_float.cpp typed_integer.cpp typed_short.cpp
    typed_wide.cpp)
# The rest of a suite for threads and the simulator, of a suite for MPI, and of a suite for UCX.
set(spar_perf_suite_sources run_sim.cpp run_threads.cpp suite.cpp)
set(spar_perf_mpi_sources run_mpi.cpp suite.cpp)
set(spar_perf_ucx_sources run_ucx.cpp suite.cpp)
# What programs with count_device_calls.hpp wrap.
set(spar_perf_device_calls cudaLaunchKernelExC __cudaLaunchKernel cudaLaunchKernel cudaGraphLaunch cudaEventRecord
    cudaEventQuery cudaEventSynchronize cudaStreamSynchronize)
# Kernels of policies alone, which need Google Benchmark.
set(spar_perf_kernels_sources kernels/contract.cpp kernels/inputs.cpp kernels/kernels.cpp kernels/table.cpp
    machine.cpp units.cpp verdict.cpp)
