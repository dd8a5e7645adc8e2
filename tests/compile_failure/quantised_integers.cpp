// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Quantisation rounds to levels between values: integers are refused.
#include <spar/spar.hpp>

#ifdef POSITIVE_CONTROL
using value = float;
#else
using value = int;
#endif

void f(spar::threads& net, spar::stream_view<value> mine) {
  (void)spar::allreduce(net, mine, spar::with_storage<spar::dsar_split, spar::storage::qsgd<4>>{});
}
