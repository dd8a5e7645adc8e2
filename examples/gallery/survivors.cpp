// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Training that goes on without the ranks that fail, one after the other. The others agree who is left, return to the
// last state that all of them have saved, and continue with their residuals.
#include <spar/spar.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <new>
#include <vector>

struct worker {
  struct state {
    std::vector<float> weights;
    std::vector<std::byte> reducer; // the residual, and the state of the selector
  };
  std::vector<float> weights = std::vector<float>(1000);
  spar::topka<float> reduce{{.select = {.k = 100}}};
  std::vector<state> saved{}; // after 0, 10, 20, ... steps

  /// Trains until `net` fails or the training is complete.
  void train(spar::threads& net, int id) {
    for (std::size_t step = go_back(net); step < 100; ++step) {
      if (step % 10 == 0) saved.resize(step / 10), saved.push_back({weights, reduce.save()});
      if (id > 1 && step == 15 * static_cast<std::size_t>(id)) throw std::bad_alloc(); // ranks 2 and 3 fail
      std::vector<float> gradient(1000);
      for (std::size_t i = 0; i < 1000; ++i) gradient[i] = weights[i] - 1; // of half the squared distance from 1
      spar::sgd_step(net, weights, gradient, 0.05F, reduce);
    }
  }

  /// Returns to the last state that all ranks have saved, and returns the number of the next step.
  std::size_t go_back(spar::threads& net) {
    std::vector<std::uint64_t> last{saved.empty() ? 0 : saved.size() - 1};
    spar::allreduce(net, last, spar::ring{}, spar::minimum{});
    if (!saved.empty()) weights = saved[last[0]].weights, reduce.load(saved[last[0]].reducer);
    return 10 * last[0];
  }
};

int main() {
  spar::thread_group ranks(4);
  int complete = 0;
  try {
    ranks.run([&](spar::threads& world) {
      worker own;
      for (spar::threads* net = &world;;) {
        try {
          own.train(*net, world.rank());
          if (net->rank() == 0) complete = own.weights[0] > 0.99F ? net->size() : 0;
          return;
        } catch (const spar::peer_failed& failure) {
          std::printf("rank %d of %d: %s\n", net->rank(), net->size(), failure.what());
          net = &net->shrink();
        }
      }
    });
  } catch (const std::bad_alloc&) { // of the rank that failed first
  }
  std::printf("%d ranks have completed the training\n", complete);
  return complete == 2 ? 0 : 1;
}
