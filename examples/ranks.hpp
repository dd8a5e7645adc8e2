// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A few lines over plain MPI: who am I, one number over all ranks, errors on which all ranks agree.
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

/// The sum, maximum, ... of a number over all ranks.
template <class Number>
double over_ranks(Number mine, MPI_Op operation) {
  auto value = static_cast<double>(mine);
  MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, operation, MPI_COMM_WORLD);
  return value;
}

/// Runs `part` on every rank and says on every rank whether it succeeded on all; if not, the first that failed says
/// why.
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

/// The whole of a main: MPI around `run(argc, argv)`, which returns the exit status. An error of one rank ends all.
template <class Run>
int run_over_mpi(int argc, char** argv, Run run) {
  MPI_Init(&argc, &argv);
  int status = 1;
  try {
    status = run(argc, argv);
  } catch (const std::exception& error) { // the other ranks may be waiting for this one
    fmt::print(stderr, "{}: rank {}: {}\n", program_invocation_short_name, my_rank(), error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
  return status;
}

} // namespace examples
