// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A sum over NCCL and MPI, linked with the real libraries. Needs a GPU for each rank; tests only compile and link it.
#include <spar/collective/allreduce/ring.hpp>
#include <spar/mpi.hpp>
#include <spar/nccl.hpp>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <span>
#include <vector>

namespace {

bool is_right() {
  spar::mpi control;
  spar::nccl net(control);
  std::vector<float> x(100'000, 1);
  spar::allreduce(net, std::span(x), spar::ring{});
  return std::count(x.begin(), x.end(), static_cast<float>(net.size())) == std::ssize(x);
}

} // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int status = 2;
  try {
    status = is_right() ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "nccl_over_mpi: %s\n", error.what());
  }
  MPI_Finalize();
  return status;
}
