// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Training that goes on after a mismatch and after a timeout. All ranks still run, so all of them get another
// communicator, return to the last state that all of them have saved, and continue from there.
#include <spar/spar.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

struct worker {
  struct state {
    std::vector<float> weights;
    std::vector<std::byte> reducer; // the residual, and the state of the selector
  };
  std::vector<float> weights = std::vector<float>(1000);
  spar::topka<float> reduce{{.select = {.k = 10}}};
  std::vector<state> saved{{weights, reduce.save()}}; // after 0, 10, 20, ... steps
  /// Returns to the last state that all ranks have saved, and returns the number of the next step.
  std::size_t go_back(spar::threads& net) {
    std::vector<std::uint64_t> last{saved.size() - 1};
    spar::allreduce(net, last, spar::ring{}, spar::minimum{});
    weights = saved[last[0]].weights;
    reduce.load(saved[last[0]].reducer);
    reduce.set_algorithm({.select = {.k = 10}});
    return 10 * last[0];
  }

  void run(spar::threads& net, int attempt) {
    net.set_deadline(0.5); // seconds
    for (std::size_t step = go_back(net); step < 50; ++step) {
      if (step % 10 == 0) saved.resize(step / 10), saved.push_back({weights, reduce.save()});
      if (attempt == 0 && step == 25 && net.rank() == 1) reduce.set_algorithm({.select = {.k = 20}});
      if (attempt == 1 && step == 35 && net.rank() == 2) std::this_thread::sleep_for(std::chrono::seconds(1));
      std::vector<float> gradient(weights); // of half the squared distance from a point of this rank
      for (std::size_t i = 0; i < 1000; ++i) gradient[i] -= static_cast<float>((net.rank() + 3U) * (i + 7) % 31);
      spar::sgd_step(net, weights, gradient, 0.5F, reduce);
    }
  }
};

std::vector<float> train(int attempt) {
  std::vector<worker> workers(4);
  for (;; ++attempt) {
    spar::thread_group ranks(4); // over MPI, each rank constructs another spar::mpi(MPI_COMM_WORLD) here
    try {
      ranks.run([&](spar::threads& net) { workers[static_cast<std::size_t>(net.rank())].run(net, attempt); });
      return workers[0].weights;
    } catch (const spar::error& failure) {
      std::printf("%s\n", failure.what());
    }
  }
}

int main() {
  if (train(0) != train(2)) return 1; // attempts from 2 on have no failure
  std::printf("the weights are those of a training without a failure\n");
}
