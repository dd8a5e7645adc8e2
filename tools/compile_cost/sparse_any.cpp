// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <spar/any.hpp>

#include <cstdint>
#include <cstdio>
#include <vector>

int main() {
  spar::any_group ranks = spar::any_group::threads(4);
  ranks.run([](spar::any_transport& net) {
    const auto own = static_cast<std::uint32_t>(100 + net.rank());
    const std::vector<std::uint32_t> indices{7, own};
    const std::vector<float> values{1.0F, 2.0F};
    spar::any_allreduce<float> reduce;
    const auto sum = reduce(net, 1'000'000, indices, values);
    if (net.rank() == 0 && !sum.is_dense()) std::printf("%u: %g\n", sum.indices()[0], sum.values()[0]);
  });
}
