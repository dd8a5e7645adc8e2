// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Adam (Kingma and Ba, ICLR 2015) over Ok-Topk in buckets, as in Ok-Topk's training of BERT: ranks send 1 % of their
// gradients, and update their moments from the same sums.
#include <spar/spar.hpp>
#include <spar/system/bucketed_feedback.hpp>

#include <cmath>
#include <cstdio>
#include <random>
#include <span>
#include <vector>

constexpr int steps = 400;
constexpr float rate = 0.02F, beta1 = 0.9F, beta2 = 0.999F, epsilon = 1e-8F;

struct layer {
  spar::parameter about;
  std::vector<float> weights, gradient, mean, square; // `mean` and `square` are Adam's moments
  explicit layer(const spar::parameter& p)
      : about(p), weights(p.size), gradient(p.size), mean(p.size), square(p.size) {}

  /// A step of Adam with the gradient that all ranks have summed. The rate is not in the residual, so it may change.
  void descend(int step) {
    const float correction = std::sqrt(1 - std::pow(beta2, float(step))) / (1 - std::pow(beta1, float(step)));
    for (std::size_t i = 0; i < about.size; ++i) {
      mean[i] = beta1 * mean[i] + (1 - beta1) * gradient[i];
      square[i] = beta2 * square[i] + (1 - beta2) * gradient[i] * gradient[i];
      weights[i] -= rate * correction * mean[i] / (std::sqrt(square[i]) + epsilon);
    }
  }
};

int main() {
  spar::thread_group ranks(4);
  ranks.run([](spar::threads& net) {
    const std::vector<spar::parameter> model{{"classifier", 500}, {"attention", 3000}, {"embedding", 6000}};
    std::vector<layer> layers(model.begin(), model.end());
    spar::bucketed_feedback<spar::threads, float, spar::ok_topk_allreduce<>, spar::average> gradients(
        net, model, {.bucket_bytes = 8 << 10}, {.select = {.density = 0.01}});
    std::mt19937 noise(static_cast<unsigned>(net.rank()));
    std::uniform_real_distribution<float> error(-0.1F, 0.1F);
    const auto loss = [&] {
      double all = 0;
      for (const layer& l : layers)
        for (const float w : l.weights) all += (w - 1) * (w - 1) / 2;
      return all;
    };
    const double before = loss();
    for (int step = 1; step <= steps; ++step) {
      for (layer& l : layers) {
        for (std::size_t i = 0; i < l.about.size; ++i) l.gradient[i] = l.weights[i] - 1 + error(noise);
        gradients.ready(l.about.name, l.gradient);
      }
      gradients.wait();
      for (layer& l : layers) l.descend(step);
    }
    if (net.rank() == 0) std::printf("loss %.1f before and %.1f after %d steps\n", before, loss(), steps);
    if (!(loss() < before / 10)) throw spar::error("the loss has not fallen");
  });
}
