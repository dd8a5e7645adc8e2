// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A reduce-scatter of a gradient in which each rank owns whole layers, so that the blocks have very different lengths,
// and a barrier.
#include <spar/spar.hpp>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <vector>

constexpr std::array<std::uint64_t, 5> layers{64'000, 256, 9'000, 10, 1'000};
constexpr std::array<std::size_t, 4> layers_of_rank{1, 1, 0, 3}; // rank 2 owns nothing, and only takes part

int main() {
  // The bounds of the blocks are the sums of their lengths, equal on all ranks.
  std::vector<std::uint64_t> bounds{0};
  for (auto layer = layers.begin(); const std::size_t owned : layers_of_rank) {
    bounds.push_back(std::accumulate(layer, layer + owned, bounds.back()));
    layer += owned;
  }
  std::atomic<int> done = 0;

  spar::thread_group ranks(4);
  ranks.run([&](spar::threads& net) {
    const spar::bounded_ownership owners{bounds};
    std::vector<float> gradient(bounds.back(), 1.0F + static_cast<float>(net.rank()));
    spar::reduce_scatter(net, gradient, owners);
    const auto sent = static_cast<unsigned>(net.last_call().bytes_sent);

    const spar::index_range mine = owners[net.rank()]; // only this block of `gradient` holds the sum
    for (std::uint64_t i = mine.begin; i < mine.end; ++i) {
      if (gradient[i] != 1 + 2 + 3 + 4) throw spar::error("a wrong sum");
    }
    std::printf("rank %d owns %5u values, and sent %6u bytes\n", net.rank(), static_cast<unsigned>(mine.size()), sent);

    ++done;
    spar::barrier(net); // returns when all ranks have called it
    if (done != net.size()) throw spar::error("a rank left the barrier too early");
  });
}
