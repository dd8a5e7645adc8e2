// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Before MPI_Init and after MPI_Finalize a spar::mpi cannot be made, and says so.
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

} // namespace

int main(int argc, char** argv) {
  const std::string before = error_of_making();
  MPI_Init(&argc, &argv);
  const std::string meanwhile = error_of_making();
  MPI_Finalize();
  const std::string after = error_of_making();
  const bool right = before.find("MPI is not initialised") != std::string::npos && meanwhile.empty() &&
                     after.find("MPI is finalised") != std::string::npos;
  if (!right)
    std::fprintf(stderr, "before: %s\nmeanwhile: %s\nafter: %s\n", before.c_str(), meanwhile.c_str(), after.c_str());
  return right ? 0 : 1;
}
