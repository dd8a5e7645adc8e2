// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Quantisation rounds to levels between values: integers are rejected.
#include <spar/spar.hpp>

#ifdef POSITIVE_CONTROL
using value = float;
#else
using value = int;
#endif

void f(spar::threads& net, std::span<value> x) {
  spar::allreduce(net, x, spar::compose(spar::storage::qsgd<4>{}, spar::ring{}));
}
