// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Error feedback in buckets: the gradients of some layers are summed while the program still computes those of others.
#include <spar/spar.hpp>
#include <spar/system/bucketed_feedback.hpp>

#include <cstdio>
#include <random>
#include <span>
#include <vector>

constexpr int steps = 300;
constexpr float rate = 0.02F;
constexpr float solution = 1.0F; // of every weight

float loss_of(const std::vector<std::vector<float>>& layers) {
  float loss = 0;
  for (const auto& layer : layers)
    for (const float w : layer) loss += (w - solution) * (w - solution) / 2;
  return loss;
}

int main() {
  spar::thread_group ranks(4);
  ranks.run([](spar::threads& net) {
    // The layers in the order in which back-propagation computes their gradients.
    const std::vector<spar::parameter> model{{"head", 100}, {"fc2", 2000}, {"fc1", 8000}, {"embedding", 4000}};
    std::mt19937 noise(static_cast<unsigned>(net.rank()));
    std::uniform_real_distribution<float> error(-0.2F, 0.2F);
    std::vector<std::vector<float>> weights, gradient; // live longer than the buckets, which borrow the gradients
    for (const auto& p : model) weights.emplace_back(p.size), gradient.emplace_back(p.size);
    spar::bucketed_feedback<spar::threads, float, spar::ok_topk_allreduce<>, spar::average> gradients(
        net, model, {.bucket_bytes = 16 << 10}, {.select = {.density = 0.02}});
    const spar::progress_thread progress(net); // buckets make progress while this thread computes

    const float before = loss_of(weights);
    for (int step = 0; step < steps; ++step) {
      for (std::size_t l = 0; l < model.size(); ++l) { // the backward pass
        for (std::size_t i = 0; i < model[l].size; ++i)
          gradient[l][i] = rate * (weights[l][i] - solution + error(noise)); // scaled by the learning rate
        gradients.ready(model[l].name, gradient[l]);
      }
      gradients.wait(); // every gradient holds the mean of what the ranks have sent
      for (std::size_t l = 0; l < model.size(); ++l)
        for (std::size_t i = 0; i < model[l].size; ++i) weights[l][i] -= gradient[l][i];
      if (step == 0) gradients.rebuild(model, 40 << 10); // larger buckets: the residuals stay with their layers
    }
    const float after = loss_of(weights);
    if (!(after < before / 10)) throw spar::error("the loss has not fallen");
    if (net.rank() == 0)
      std::printf("%zu buckets, loss %.1f before and %.1f after\n", gradients.buckets(), before, after);
  });
}
