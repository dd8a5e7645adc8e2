// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Calls dense recursive doubling with one of the two header trees, for valgrind --tool=callgrind.
// usage: callgrind_old|callgrind_new threads|sim BYTES CALLS
#include "calls.inc"
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: %s threads|sim BYTES CALLS\n", argv[0]);
    return 2;
  }
  const std::string where = argv[1];
  const std::size_t n = std::strtoull(argv[2], nullptr, 10) / 4;
  const int times = std::atoi(argv[3]);
  std::vector<std::vector<float>> x(2, std::vector<float>(n));
  if (where == "sim") {
    spar::simulator engine(2);
    engine.run(
        [&](spar::sim& net) { return calls::simulated_doubling(net, x[static_cast<std::size_t>(net.rank())], times); });
  } else {
    spar::thread_group group(2);
    group.run([&](spar::threads& net) {
      for (int i = 0; i < times; ++i) calls::doubling(net, std::span(x[static_cast<std::size_t>(net.rank())]));
    });
  }
}
