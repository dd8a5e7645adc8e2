// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Creating a spar::mpi before MPI_Init or after MPI_Finalize is an error that says so; a progress thread needs more
// than MPI_Init.
#include <spar/mpi.hpp>

#include <mpi.h>

#include <cstdio>
#include <string>

namespace {

/// Returns the error of creating a transport, or an empty text if there is none.
std::string error_of_making() {
  try {
    const spar::mpi net{MPI_COMM_WORLD};
  } catch (const spar::invalid_argument& e) {
    return e.what();
  }
  return {};
}

/// Whether a progress thread reports that it needs MPI_THREAD_MULTIPLE. True also if the MPI library provides it
/// anyway.
bool says_that_threads_may_not_call() {
  int provided = MPI_THREAD_SINGLE;
  MPI_Query_thread(&provided);
  spar::mpi net{MPI_COMM_WORLD};
  try {
    const spar::progress_thread progress(net);
  } catch (const spar::invalid_argument& e) {
    return std::string(e.what()).find("needs MPI_THREAD_MULTIPLE") != std::string::npos;
  }
  return provided == MPI_THREAD_MULTIPLE;
}

} // namespace

int main(int argc, char** argv) {
  const std::string before = error_of_making();
  MPI_Init(&argc, &argv);
  const std::string meanwhile = error_of_making();
  const bool said = says_that_threads_may_not_call();
  MPI_Finalize();
  const std::string after = error_of_making();
  const bool right = said && before.find("MPI is not initialised") != std::string::npos && meanwhile.empty() &&
                     after.find("MPI is finalised") != std::string::npos;
  if (!right)
    std::fprintf(stderr, "before: %s\nmeanwhile: %s\nafter: %s\n", before.c_str(), meanwhile.c_str(), after.c_str());
  return right ? 0 : 1;
}
