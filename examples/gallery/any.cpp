// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ok-Topk by its name, from the compiled library: this file compiles in a fraction of a second.
#include <spar/any.hpp>

#include <cstdio>

int main(int argc, char** argv) {
  const char* const algorithm = argc > 1 ? argv[1] : "ok_topk:k=3";
  try {
    spar::any_group::threads(4).run([&](spar::any_transport& net) {
      float x[1000];
      for (int i = 0; i < 1000; ++i) x[i] = 1.0F / static_cast<float>(1 + i) + static_cast<float>(net.rank());
      spar::any_feedback<float> reduce(algorithm);
      const auto result = reduce.reduce(net, x);
      if (net.rank() != 0) return;
      for (std::size_t e = 0; e < result.sum.indices().size(); ++e)
        std::printf("%u: %.3f\n", result.sum.indices()[e], static_cast<double>(result.sum.values()[e]));
    });
  } catch (const std::exception& e) {
    std::printf("%s\n", e.what());
    return 1;
  }
}
