// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A user's program that links spar::zfp: an allreduce with zfp at 16 bits per value.
#include <spar/spar.hpp>
#include <spar/storage/zfp.hpp>

#include <atomic>
#include <cmath>
#include <span>
#include <vector>

int main() {
  constexpr int ranks = 3;
  std::atomic<int> right = 0;
  spar::thread_group group{ranks};
  group.run([&](spar::threads& net) {
    std::vector<float> x(1000, 0.5F);
    spar::allreduce(net, std::span(x), spar::compose(spar::storage::zfp{.rate = 16}, spar::ring{}));
    if (std::abs(x[999] - 1.5F) < 1e-2F) ++right;
  });
  return right == ranks ? 0 : 1;
}
