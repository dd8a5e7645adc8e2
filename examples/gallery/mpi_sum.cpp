// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The sum of one sparse vector from each rank of an MPI program.
#include <spar/mpi.hpp>

#include <cstdint>
#include <cstdio>
#include <vector>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  {
    spar::mpi world(MPI_COMM_WORLD);

    const auto own = static_cast<std::uint32_t>(100 + world.rank());
    const std::vector<std::uint32_t> indices{7, own}; // ascending, below n
    const std::vector<float> values{1.0F, 2.0F};
    const auto contribution = spar::sparse_view(1'000'000, indices, values); // refers to the vectors, copies nothing

    const auto sum = spar::allreduce(world, contribution); // SparCML: the cheapest of three algorithms

    if (world.rank() == 0) sum.for_each([](std::uint32_t i, float x) { std::printf("%u: %g\n", i, x); });
    if (sum.count() != 1 + static_cast<std::uint64_t>(world.size())) MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}
