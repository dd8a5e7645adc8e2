// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sums in code are of all dense values.
#include <spar/collective/compressed/bound.hpp>
#include <spar/spar.hpp>

#include <vector>

void program(spar::threads& net) {
  std::vector<float> x(100);
#ifdef POSITIVE_CONTROL
  spar::allreduce(net, x, spar::compose(spar::storage::bound{.error = 0.1}, spar::ring{}));
#else
  spar::allreduce(net, x, spar::compose(spar::selector::nonzeros{}, spar::storage::bound{.error = 0.1}, spar::ring{}));
#endif
}
