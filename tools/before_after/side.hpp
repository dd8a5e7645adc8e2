// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The interface between the driver and one header tree ("side"): plain functions, so that one process holds both trees.
#pragma once
#include <cstddef>
#include <cstdint>

/// One rank's input of a case. All instances share the input, so that both trees use the same memory.
struct inputs {
  std::size_t n = 0;
  float* x = nullptr;                     // dense vector, reduced in place (zeros, which stay zeros), or a gradient
  const std::uint32_t* indices = nullptr; // indices of the sparse case
  const float* values = nullptr;
  std::size_t k = 0;
  double density = 0; // density of the ok_topk case
};

enum class operation { doubling, dense, sparse, ok_topk };

struct side {
  const char* name;
  void* (*open_threads)(int ranks);
  void (*close_threads)(void*);
  void* (*open_mpi)(); // returns null if built without MPI
  void (*close_mpi)(void*);
  void* (*open_sim)(int ranks);
  void (*close_sim)(void*);
  /// Creates the state of one rank for a case, on threads or MPI, or of all ranks in the simulator.
  void* (*begin_threads)(void* transport, int rank, operation, const inputs*);
  void* (*begin_mpi)(void* transport, operation, const inputs*);
  void* (*begin_sim)(void* transport, operation, const inputs*);
  void (*call)(void* state, int times);
  void (*end)(void* state);
};

extern const side side_old;
extern const side side_new;
