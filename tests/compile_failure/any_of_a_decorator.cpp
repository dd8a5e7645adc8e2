// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An any_transport cannot wrap a decorator.
#include <spar/spar.hpp>
#include <spar/transport/any.hpp>

void wrap(spar::threads& rank) {
#ifdef POSITIVE_CONTROL
  spar::any_transport net(rank);
  spar::counting<spar::any_transport> counted(net);
#else
  spar::counting<spar::threads> counted(rank);
  spar::any_transport net(counted);
#endif
}
