// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A selector that changes from call to call has no place in an algorithm that cannot keep it.
#include <spar/spar.hpp>

#ifdef POSITIVE_CONTROL
using chosen = spar::collective<spar::selector::exact_topk>;
#else
using chosen = spar::collective<spar::selector::threshold_reuse>;
#endif

void f(spar::threads& net, std::span<float> x) { spar::allreduce(net, x, chosen{}); }
