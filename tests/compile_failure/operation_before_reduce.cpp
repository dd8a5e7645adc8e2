// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A reduce and a reduce_scatter reject an operation in the place of the algorithm in one sentence.
#include <spar/spar.hpp>

void f(spar::threads& net, std::span<float> x, spar::bounded_ownership owners) {
#ifdef POSITIVE_CONTROL
  spar::reduce(net, x, 0, spar::binomial_reduce{}, spar::maximum{});
  spar::reduce_scatter(net, x, spar::ring_reduce_scatter{}, spar::maximum{});
  spar::reduce_scatter(net, x, owners, spar::ring_reduce_scatter{}, spar::maximum{});
#elif defined(REDUCE)
  spar::reduce(net, x, 0, spar::maximum{});
#elif defined(REDUCE_SCATTER)
  spar::reduce_scatter(net, x, spar::maximum{});
#else
  spar::reduce_scatter(net, x, owners, spar::maximum{});
#endif
}
