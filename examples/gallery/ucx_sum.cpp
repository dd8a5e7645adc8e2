// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sums sparse vectors over processes without MPI, which scripts/ranks, srun or another launcher starts.
#include <spar/ucx.hpp>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

int main() {
  try {
    spar::ucx world; // the launcher's variables say which rank this is, and where the ranks meet

    const auto own = static_cast<std::uint32_t>(100 + world.rank());
    const std::vector<std::uint32_t> indices{7, own};
    const std::vector<float> values{1.0F, 2.0F};
    const auto sum = spar::allreduce(world, spar::sparse_view(1'000'000, indices, values));

    if (sum.count() != 1 + static_cast<std::uint64_t>(world.size())) throw spar::error("a wrong number of entries");
    if (world.rank() == 0) sum.for_each([](std::uint32_t i, float x) { std::printf("%u: %g\n", i, x); });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
