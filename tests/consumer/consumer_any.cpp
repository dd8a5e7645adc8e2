// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A user's program with the compiled library: sums values of four in-process ranks.
#include <spar/any.hpp>

#include <array>
#include <atomic>
#include <span>

int main() {
  constexpr int ranks = 4;
  std::atomic<int> right = 0;
  spar::any_group group = spar::any_group::threads(ranks);
  group.run([&](spar::any_transport& net) {
    std::array<float, 3> x{1, 2, static_cast<float>(net.rank())};
    const spar::any_allreduce<float> reduce("sparcml");
    reduce(net, std::span<float>(x));
    if (x == std::array<float, 3>{4, 8, 6}) ++right;
  });
  return right == ranks ? 0 : 1;
}
