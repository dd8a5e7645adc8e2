// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <spar/allreduce.hpp>
#include <spar/transport/threads.hpp>

#include <cstdint>
#include <cstdio>
#include <vector>

int main() {
  spar::thread_group ranks(4);
  ranks.run([](spar::threads& net) {
    const auto own = static_cast<std::uint32_t>(100 + net.rank());
    const std::vector<std::uint32_t> indices{7, own};
    const std::vector<float> values{1.0F, 2.0F};
    const auto mine = spar::sparse_view(1'000'000, indices, values);
    const auto sum = spar::allreduce(net, mine);
    if (net.rank() == 0) sum.for_each([](std::uint32_t i, float x) { std::printf("%u: %g\n", i, x); });
  });
}
