// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Elastic training over UCX: a rank leaves, the others go on without it, and a process that starts later takes its
// place. Start it by scripts/ranks 3 PROGRAM.
#include <spar/ucx.hpp>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

struct worker {
  std::vector<float> weights = std::vector<float>(1000);
  std::uint64_t step = 0;
  std::optional<spar::topka<float>> reduce{std::in_place, spar::topka_allreduce{.select = {.k = 100}}};

  /// All ranks take the step and the weights of rank 0. Each keeps its residual; a process that has joined has none.
  void agree(spar::ucx& net) {
    spar::broadcast(net, std::span(&step, 1), 0);
    spar::broadcast(net, weights, 0);
    const auto saved = reduce->save();
    reduce.emplace(reduce->algorithm()); // its state, apart from the residual, must be the same on all ranks
    reduce->take_over(saved);
  }

  /// Trains until 100 steps are complete and `ranks` ranks are there. `each_step(net)` may end the program.
  template <class EachStep>
  void train(std::unique_ptr<spar::ucx> net, spar::rank_t ranks, EachStep each_step) {
    for (bool agreed = false; !agreed || step < 100 || net->size() < ranks;) {
      try {
        if (!agreed) agree(*net);
        agreed = true;
        if (!each_step(*net)) return;
        std::vector<float> gradient(1000);
        for (std::size_t i = 0; i < 1000; ++i) gradient[i] = weights[i] - 1; // of half the squared distance from 1
        spar::sgd_step(*net, weights, gradient, 0.05F, *reduce);
        ++step;
        if (auto wider = net->grow()) net = std::move(wider), agreed = false;
      } catch (const spar::peer_failed& failure) {
        std::printf("rank %d of %d: %s\n", net->rank(), net->size(), failure.what());
        net.reset(new spar::ucx(net->shrink()));
        agreed = false;
      }
    }
    std::printf("rank %d of %d has completed the training\n", net->rank(), net->size());
  }
};

int main(int count, char** arguments) {
  try {
    worker own;
    if (count > 1 && std::string_view(arguments[1]) == "join") {
      own.train(std::unique_ptr<spar::ucx>(new spar::ucx(spar::ucx::join())), 3, [](spar::ucx&) { return true; });
      return own.weights[0] > 0.99F ? 0 : 1;
    }
    auto world = std::make_unique<spar::ucx>();
    const spar::rank_t first_rank = world->rank();
    pid_t replacement = 0; // which the launcher of a real job would start
    own.train(std::move(world), 3, [&](spar::ucx& net) {
      if (first_rank == 1 && net.size() == 2 && replacement == 0) {
        char join[] = "join";
        char* const command[] = {arguments[0], join, nullptr};
        if (posix_spawn(&replacement, arguments[0], nullptr, nullptr, command, environ) != 0) replacement = -1;
      }
      return first_rank != 2 || own.step < 30; // rank 2 leaves
    });
    int status = 0;
    if (replacement > 0) waitpid(replacement, &status, 0);
    return status == 0 && (first_rank == 2 || own.weights[0] > 0.99F) ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
