// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Least squares by SGD over four ranks, which send 1 % of each gradient (Ok-Topk) and keep the rest in a residual.
#include <spar/spar.hpp>

#include <cstdio>
#include <random>
#include <span>
#include <vector>

constexpr std::size_t n = 5000;
constexpr int steps = 400;
constexpr float solution = 1.0F; // of every weight

/// The gradient of half the squared distance from the solution, with the noise of this rank's data.
std::vector<float> gradient_at(std::span<const float> weights, std::mt19937& noise) {
  std::uniform_real_distribution<float> error(-0.2F, 0.2F);
  std::vector<float> gradient(n);
  for (std::size_t i = 0; i < n; ++i) gradient[i] = weights[i] - solution + error(noise);
  return gradient;
}

float loss_of(std::span<const float> weights) {
  float loss = 0;
  for (const float w : weights) loss += (w - solution) * (w - solution) / 2;
  return loss;
}

int main() {
  spar::thread_group ranks(4);
  ranks.run([](spar::threads& net) {
    std::mt19937 noise(static_cast<unsigned>(net.rank()));
    std::vector<float> weights(n);
    spar::ok_topk<float> reduce{{.select = {.density = 0.01}}}; // keeps the residual from step to step

    const float before = loss_of(weights);
    for (int step = 0; step <= steps; ++step) {
      if (net.rank() == 0 && step % 100 == 0) std::printf("step %3d: loss %7.2f\n", step, loss_of(weights));
      std::vector<float> gradient = gradient_at(weights, noise);
      spar::sgd_step(net, weights, gradient, 0.005F, reduce); // the same weights on every rank
    }
    if (!(loss_of(weights) < before / 20)) throw spar::error("the loss has not fallen");

    const double sent = static_cast<double>(net.statistics().bytes_sent) / (steps + 1);
    const double dense = 2.0 * 3 / 4 * n * sizeof(float); // the least that a rank can send in a dense allreduce
    if (net.rank() == 0) std::printf("%.0f bytes per step, %.1f %% of a dense allreduce\n", sent, 100 * sent / dense);
  });
}
