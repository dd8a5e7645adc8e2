// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A selector takes entries from dense values; a stream has its entries already, so a selector is rejected.
#include <spar/spar.hpp>

#ifdef POSITIVE_CONTROL
constexpr spar::everything chosen{};
#else
constexpr spar::selector::exact_topk chosen{.k = 3};
#endif

void f(spar::threads& net, spar::stream_view<float> mine) {
  (void)spar::allreduce(net, mine, spar::compose(chosen, spar::recursive_doubling{}));
}
