// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// SGD with momentum and Ok-Topk: momentum correction, factor masking and warm-up (Deep Gradient Compression; Lin et
// al., ICLR 2018, sections 3.2 and 3.3), compared with momentum that ignores the residuals.
#include <spar/spar.hpp>

#include <algorithm>
#include <cstdio>
#include <random>
#include <span>
#include <vector>

constexpr std::size_t model_size = 4000; // of the weights
constexpr int steps = 500, warm_up = 40;
constexpr float rate = 0.02F, momentum = 0.9F;

float curvature(std::size_t i) { return 0.05F + 0.95F * static_cast<float>(i % 100) / 100; }

/// Trains on one rank of several; returns the loss. Weight i has the loss curvature(i) (w - 1)^2 / 2.
double train(spar::threads& net, bool corrects) {
  std::mt19937 noise(static_cast<unsigned>(net.rank()));
  std::uniform_real_distribution<float> error(-0.1F, 0.1F);
  std::vector<float> weights(model_size), gradient(model_size), velocity(model_size);
  spar::ok_topk<float> reduce;
  for (int step = 0; step < steps; ++step) {
    const double density = std::max(0.05, 0.25 * (1 - static_cast<double>(step) / warm_up)); // falls to 5 %
    if (step <= warm_up) reduce.set_algorithm({.select = {.density = density}});
    for (std::size_t i = 0; i < model_size; ++i) gradient[i] = curvature(i) * (weights[i] - 1) + error(noise);
    if (corrects) {
      // Each rank has its own velocity. The error feedback accumulates velocities, not gradients.
      for (std::size_t i = 0; i < model_size; ++i) velocity[i] = momentum * velocity[i] + gradient[i];
      const auto update = reduce.reduce(net, std::span<const float>(velocity), spar::average{});
      update.sum.for_each([&](auto i, float u) { weights[i] -= rate * u; });
      update.contributed.for_each([&](auto i, float) { velocity[i] = 0; }); // factor masking: stale after it was sent
    } else {
      // All ranks have the same velocity, of the sums: those of an entry arrive together, after many steps.
      reduce(net, gradient, spar::average{});
      for (std::size_t i = 0; i < model_size; ++i) {
        velocity[i] = momentum * velocity[i] + gradient[i];
        weights[i] -= rate * velocity[i];
      }
    }
  }
  double loss = 0;
  for (std::size_t i = 0; i < model_size; ++i) loss += curvature(i) * (weights[i] - 1) * (weights[i] - 1) / 2;
  return loss;
}

int main() {
  spar::thread_group ranks(4);
  ranks.run([](spar::threads& net) {
    const double with = train(net, true), without = train(net, false);
    if (net.rank() == 0) std::printf("loss %.3f with momentum correction, %.3f without\n", with, without);
    if (!(with < without)) throw spar::error("momentum correction has not helped");
  });
}
