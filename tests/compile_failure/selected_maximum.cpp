// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Selectors leave zeros out, so the operation must not care about them.
#include <spar/spar.hpp>
#include <spar/system/collective.hpp>

void f(spar::threads& net, std::span<float> x) {
#ifdef POSITIVE_CONTROL
  spar::allreduce(net, x, spar::collective<>{}, spar::sum{});
#else
  spar::allreduce(net, x, spar::collective<>{}, spar::maximum{});
#endif
}
