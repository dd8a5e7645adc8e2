// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// eager-SGD: three of four ranks are enough for a step, so nobody waits for rank 3, which is always late. Its gradients
// go into later steps.
#include <spar/spar.hpp>
#include <spar/system/eager_sgd.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

int main() {
  using namespace std::chrono_literals;
  constexpr int steps = 20;
  constexpr float rate = 0.125F, gradient_of_each = 2.0F;
  std::array<float, 4> results{};

  spar::thread_group ranks(4);
  ranks.run([&](spar::threads& net) {
    const spar::progress_thread progress(net); // a rank takes part in the steps of others while it computes
    std::vector<float> weights(1000);
    spar::eager_sgd<float, spar::threads, spar::quorum> optimizer(net, weights.size(), {.q = 3});

    int late = 0; // steps without a fresh gradient of rank 3
    std::uint64_t by_steps = 0;
    const double start = net.now();
    for (int step = 0; step < steps; ++step) {
      std::this_thread::sleep_for(net.rank() == 3 ? 20ms : 5ms); // computes the gradient
      std::vector<float> gradient(weights.size(), gradient_of_each);
      const spar::participants by = optimizer.step(weights, gradient, rate);
      if (by[3] != spar::presence::fresh) ++late;
      by_steps = std::max(by_steps, by.staleness(3));
    }
    std::printf("rank %d: %d steps in %3.0f ms\n", net.rank(), steps, 1000 * (net.now() - start));
    if (net.rank() == 3) std::printf("rank 3 was late for %d steps, by up to %d\n", late, static_cast<int>(by_steps));

    optimizer.finish(weights); // the gradients that were too late for the last step
    results[static_cast<std::size_t>(net.rank())] = weights[0];
  });
  // No gradient is lost, and none counts twice: each step subtracts the mean gradient times the rate, sooner or later.
  for (const float weight : results) {
    if (weight != -steps * rate * gradient_of_each) throw spar::error("a gradient is lost");
  }
  std::printf("weights of all ranks after the last step: %g\n", static_cast<double>(results[0]));
}
