// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The sum of one sparse vector from each rank. The ranks are four threads of this process.
#include <spar/spar.hpp>

#include <cstdint>
#include <cstdio>
#include <vector>

int main() {
  spar::thread_group ranks(4);
  ranks.run([](spar::threads& net) {
    // A vector of length 1,000,000 with two entries: 1 at index 7, and 2 at an index that only this rank has.
    const std::vector<std::uint32_t> indices{7, 100 + static_cast<std::uint32_t>(net.rank())};
    const std::vector<float> values{1.0F, 2.0F};

    const auto sum = spar::allreduce(net, spar::sparse_view(1'000'000, indices, values));

    if (sum.count() != 5) throw spar::error("expected an entry at index 7, and one of each rank");
    if (net.rank() != 0) return; // every rank has the same sum, so one of them prints it
    sum.for_each([](std::uint32_t i, float x) { std::printf("%3u: %g\n", i, x); });
    std::printf("rank 0 sent %u bytes; the dense vector has 4,000,000\n",
                static_cast<unsigned>(net.statistics().bytes_sent));
  });
}
