// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A hundred allreduces in flight at once. Each rank finishes its layers in another order, so the calls have names.
#include <spar/spar.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

int main() {
  using namespace std::chrono_literals;
  constexpr std::size_t layers = 100;
  spar::thread_group ranks(3);
  ranks.run([](spar::threads& net) {
    std::vector<std::vector<float>> gradients(layers, std::vector<float>(10'000));
    std::vector<std::size_t> order(layers);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(net.rank())));

    const spar::progress_thread progress(net); // sends and receives while the program computes
    std::vector<spar::pending<spar::threads, void>> calls;
    for (const std::size_t layer : order) {
      std::vector<float>& gradient = gradients[layer];
      gradient.assign(gradient.size(), static_cast<float>(layer)); // computes the gradient
      calls.push_back(spar::start_allreduce(net, spar::named{"layer " + std::to_string(layer)}, std::span(gradient)));
    }

    int slices = 0; // of the program's own work, while the calls are in flight
    const auto ended = [](auto& call) { return call.done(); };
    for (; !std::all_of(calls.begin(), calls.end(), ended); ++slices) std::this_thread::sleep_for(1ms);

    for (auto& call : calls) call.wait(); // throws if the call has failed
    for (std::size_t layer = 0; layer < layers; ++layer) {
      if (gradients[layer][0] != static_cast<float>(3 * layer)) throw spar::error("a layer has the sum of another one");
    }
    std::printf("rank %d started with layer %2zu, and worked for %d ms until all %zu calls had ended\n", net.rank(),
                order[0], slices, layers);
  });
}
