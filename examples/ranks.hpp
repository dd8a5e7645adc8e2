// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Helpers for plain MPI: rank and size, reduction of one number, and errors on which all ranks agree.
#pragma once

#include <fmt/format.h>
#include <mpi.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <string>

namespace examples {

inline unsigned my_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return static_cast<unsigned>(rank);
}

inline unsigned number_of_ranks() {
  int ranks = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  return static_cast<unsigned>(ranks);
}

/// Reduces one number over all ranks (sum, maximum, ...). Collective.
template <class Number>
double over_ranks(Number mine, MPI_Op operation) {
  auto value = static_cast<double>(mine);
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, operation, MPI_COMM_WORLD);
  return value;
}

/// Runs `part` on every rank. Returns on every rank whether `part` succeeded on all ranks; the first rank that failed
/// prints its error. Collective.
template <class Part>
bool on_all_ranks(Part part) {
  std::string why;
  try {
    part();
  } catch (const std::exception& error) {
    why = error.what();
  }
  const auto first = static_cast<unsigned>(over_ranks(why.empty() ? number_of_ranks() : my_rank(), MPI_MIN));
  if (first == my_rank()) fmt::print(stderr, "{}: {}\n", program_invocation_short_name, why);
  return first == number_of_ranks();
}

/// A complete main(): initialises MPI, calls `run(argc, argv)` for the exit status, and finalises MPI. An exception on
/// one rank aborts the job.
template <class Run>
int run_over_mpi(int argc, char** argv, Run run) {
  MPI_Init(&argc, &argv);
  int status = 1;
  try {
    status = run(argc, argv);
  } catch (const std::exception& error) { // the other ranks may be waiting for this rank
    fmt::print(stderr, "{}: rank {}: {}\n", program_invocation_short_name, my_rank(), error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return status;
}

} // namespace examples
