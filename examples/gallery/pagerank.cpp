// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// PageRank of Debian's packages: a package passes 85 % of its score on to the packages on which it depends. Each rank
// owns a part of the packages, and the ranks sum what these pass on: after a few steps, few values that are not zero.
#include "debian_packages.hpp"

#include <spar/mpi.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <utility>
#include <vector>

/// The scores, and the number of steps.
std::pair<std::vector<float>, int> page_rank(spar::mpi& world, const package_graph& packages) {
  const std::size_t n = packages.names.size();
  std::vector<float> arrived(n, 0.15F / static_cast<float>(n)); // in the last step
  std::vector<float> score(arrived);
  int steps = 0;
  for (; std::accumulate(arrived.begin(), arrived.end(), 0.0F) > 1e-6F; ++steps) {
    std::vector<float> passed(n);
    for (auto p = static_cast<std::size_t>(world.rank()); p < n; p += static_cast<std::size_t>(world.size())) {
      const auto& needed = packages.depends[p];
      for (const std::size_t d : needed) passed[d] += 0.85F * arrived[p] / static_cast<float>(needed.size());
    }
    spar::allreduce(world, passed, spar::compose(spar::selector::nonzeros{})); // in place; sends the nonzeros
    for (std::size_t p = 0; p < n; ++p) score[p] += passed[p];
    arrived = passed;
  }
  return {score, steps};
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  {
    spar::mpi world;
    const package_graph packages = packages_of(argc > 1 ? argv[1] : "/var/lib/dpkg/status");
    auto [score, steps] = page_rank(world, packages);
    float all = 0, kept = 0.15F; // the sum of the scores, and what it must be
    for (std::size_t p = 0; p < score.size(); ++p) {
      all += score[p];
      if (!packages.depends[p].empty()) kept += 0.85F * score[p];
    }
    if (std::abs(all - kept) > 1e-4F) MPI_Abort(MPI_COMM_WORLD, 1);
    if (world.rank() == 0) {
      const int dense = 2 * (world.size() - 1) * 4 * static_cast<int>(score.size()) / world.size() * steps;
      std::printf("%zu packages, %d steps: rank 0 sent %u bytes, a dense allreduce %d\n", score.size(), steps,
                  static_cast<unsigned>(world.statistics().bytes_sent), dense);
      for (int place = 1; place <= 5; ++place) {
        const auto best = std::max_element(score.begin(), score.end());
        std::printf("%d. %s\n", place, packages.names[static_cast<std::size_t>(best - score.begin())].c_str());
        *best = 0;
      }
    }
  }
  MPI_Finalize();
}
