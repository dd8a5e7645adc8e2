// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An algorithm that cannot be called on dense values is rejected in one sentence.
#include <spar/spar.hpp>

struct nothing : spar::algorithm_defaults {
  static constexpr std::string_view name = "nothing";
};

void f(spar::threads& net, std::span<float> x) {
#ifdef POSITIVE_CONTROL
  spar::allreduce(net, x, spar::ring{});
#else
  spar::allreduce(net, x, nothing{});
#endif
}
