// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Before MPI_Init and after MPI_Finalize a spar::mpi cannot be made, and says so; MPI_Init is not enough for a progress
// thread.
#include <spar/mpi.hpp>

#include <mpi.h>

#include <cstdio>
#include <string>

namespace {

/// What making a transport throws; empty where it throws nothing.
std::string error_of_making() {
  try {
    const spar::mpi net{MPI_COMM_WORLD};
  } catch (const spar::invalid_argument& e) {
    return e.what();
  }
  return {};
}

/// What a progress thread throws under MPI_Init, unless the MPI library lets all threads call anyway.
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
