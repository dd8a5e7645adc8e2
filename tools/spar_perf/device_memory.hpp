// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What spar_perf needs to measure values in device memory. Only device_systems.cuh, which nvcc compiles, knows CUDA.
#pragma once

#include "options.hpp"
#include "report.hpp"
#include "systems.hpp"

#include <spar/topology/tree.hpp>

#include <cstdint>
#include <vector>

namespace spar::perf {

/// What this thread's rank has asked of the CUDA runtime. Counted only in programs with count_device_calls.hpp.
inline thread_local device_calls calls_of_device;
inline bool counts_device_calls = false;

class device_memory {
 public:
  using entry = system_entry<float, std::uint32_t>;

  virtual ~device_memory() = default;
  /// Throws `missing` if this machine has no usable device.
  virtual void check() const = 0;
  /// Replaces the calls of the systems, which are those that `--systems` names, in this order, by calls on values in
  /// device memory, and says in their members `memory` where they reduce. Throws `missing` for a system that cannot.
  virtual void place(std::vector<entry>& systems, const options& o, double density, const spar::tree& topology,
                     const mpi_allreduce& mpi) const = 0;
};

} // namespace spar::perf
