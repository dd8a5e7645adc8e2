// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Error feedback around an algorithm that keeps no state is rejected in one sentence.
#include <spar/spar.hpp>

void f(spar::threads& net, std::span<float> x) {
#ifdef POSITIVE_CONTROL
  auto reduce = spar::with_error_feedback<float>(spar::compose(spar::ring{}));
#else
  auto reduce = spar::with_error_feedback<float>(spar::ring{});
#endif
  reduce(net, x);
}
