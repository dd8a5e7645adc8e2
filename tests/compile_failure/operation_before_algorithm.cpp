// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An allreduce rejects an operation in the place of the algorithm in one sentence.
#include <spar/spar.hpp>

void f(spar::threads& net, std::span<float> x) {
#ifdef POSITIVE_CONTROL
  spar::allreduce(net, x, spar::sparcml{}, spar::maximum{});
#else
  spar::allreduce(net, x, spar::maximum{});
#endif
}
