// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An algorithm that cannot be called on streams is rejected in one sentence.
#include <spar/spar.hpp>

struct nothing : spar::algorithm_defaults {
  static constexpr std::string_view name = "nothing";
};

void f(spar::threads& net, spar::stream_view<float> mine) {
#ifdef POSITIVE_CONTROL
  (void)spar::allreduce(net, mine, spar::recursive_doubling{});
#else
  (void)spar::allreduce(net, mine, nothing{});
#endif
}
