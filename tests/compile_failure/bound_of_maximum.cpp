// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Codes are added, and no other operation is applied to them.
#include <spar/collective/compressed/bound.hpp>
#include <spar/spar.hpp>

#include <vector>

void program(spar::threads& net) {
  std::vector<float> x(100);
#ifdef POSITIVE_CONTROL
  const spar::average op;
#else
  const spar::maximum op;
#endif
  spar::allreduce(net, x, spar::compose(spar::storage::bound{.error = 0.1}, spar::ring{}), op);
}
