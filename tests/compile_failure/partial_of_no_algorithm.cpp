// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A partial allreduce of streams rejects a composition with a selector for dense values, in one sentence.
#include <spar/spar.hpp>
#include <spar/system/partial_allreduce.hpp>

#ifdef POSITIVE_CONTROL
constexpr spar::everything chosen{};
#else
constexpr spar::selector::nonzeros chosen{}; // takes dense values only
#endif

void f(spar::threads& net) {
  (void)spar::partial_allreduce<spar::sparse_stream<float>>(net, 10, spar::solo{}, spar::compose(chosen));
}
