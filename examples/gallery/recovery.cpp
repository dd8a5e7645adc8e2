// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Training that goes on without a failed rank. The survivors make a communicator of their own, agree on the last
// weights that all of them have saved, and continue from there.
#include <spar/mpi.hpp>

#include <cstdint>
#include <cstdio>
#include <vector>

struct training {
  std::vector<double> weights = std::vector<double>(1000);
  std::vector<std::vector<double>> saved{}; // after 0, 10, 20, ... steps; other programs would write files

  void run(spar::mpi& net, std::size_t first, spar::rank_t failing) {
    for (std::size_t step = first; step < 50; ++step) {
      if (step == 25 && net.rank() == failing) throw spar::error("no space left on device");
      if (step % 10 == 0) saved.resize(step / 10), saved.push_back(weights);
      std::vector<double> gradient(1000, weights[0] - 1); // of half the squared distance from 1; all weights are equal
      spar::sgd_step(net, weights, gradient, 0.5, spar::ring{});
    }
  }

  /// Returns to the last weights that all ranks have saved, and returns the number of the next step. A rank may be a
  /// step ahead of another one when it learns of the failure, and so may have saved its weights once more.
  std::size_t go_back(spar::mpi& net) {
    std::vector<std::uint64_t> last{saved.size() - 1};
    spar::allreduce(net, last, spar::ring{}, spar::minimum{});
    weights = saved[last[0]];
    return 10 * last[0];
  }
};

MPI_Comm world_without(int failed) {
  MPI_Group all, others;
  MPI_Comm_group(MPI_COMM_WORLD, &all);
  MPI_Group_excl(all, 1, &failed, &others);
  MPI_Comm survivors;
  MPI_Comm_create_group(MPI_COMM_WORLD, others, 0, &survivors); // only the ranks of `others` call this
  return survivors;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  {
    training job;
    spar::mpi world;
    try {
      job.run(world, 0, world.size() - 1);
    } catch (const spar::peer_failed& failure) {
      std::printf("rank %d: %s\n", world.rank(), failure.what());
      spar::mpi survivors(world_without(world.failed_rank()));
      job.run(survivors, job.go_back(survivors), -1);
      if (job.weights[0] != 1 - 0x1p-50) MPI_Abort(MPI_COMM_WORLD, 1); // each step halves the distance
      if (survivors.rank() == 0) std::printf("%d ranks have completed the training\n", survivors.size());
    } catch (const spar::error& own) {
      spar::abort(world, own.what()); // tells the other ranks why
    }
  }
  MPI_Finalize();
}
