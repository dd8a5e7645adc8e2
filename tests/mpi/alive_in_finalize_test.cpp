// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A rank that calls MPI_Finalize with a spar::mpi still tells the other ranks which calls it has made.
#include <spar/mpi.hpp>

#include <mpi.h>

#include <cstdio>
#include <span>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  auto* const net = new spar::mpi(MPI_COMM_WORLD);
  net->set_deadline(20);
  std::vector<float> x(1, 1.0F);
  std::string error;
  spar::broadcast(*net, std::span(x), 0);
  if (net->rank() > 0) {
    try {
      spar::allreduce(*net, std::span(x));
    } catch (const spar::peer_failed& e) {
      error = e.what();
    } catch (const spar::error& e) {
      std::fprintf(stderr, "expected peer_failed, got: %s\n", e.what());
    }
  }
  const bool right = net->rank() == 0 || error.find("rank 0 has left") != std::string::npos;
  if (!right) std::fprintf(stderr, "the error of rank %d: %s\n", net->rank(), error.c_str());
  MPI_Finalize();
  delete net; // after MPI_Finalize
  return right ? 0 : 1;
}
