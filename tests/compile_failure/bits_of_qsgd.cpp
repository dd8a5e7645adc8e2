// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// QSGD with another number of bits is rejected in one sentence.
#include <spar/spar.hpp>

#ifdef POSITIVE_CONTROL
constexpr int bits = 4;
#else
constexpr int bits = 3;
#endif

void f(spar::threads& net, std::span<float> x) {
  spar::allreduce(net, x, spar::compose(spar::storage::qsgd<bits>{}, spar::ring{}));
}
