// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A schedule that sends entries alone has no use for a storage that carries dense blocks alone.
#include <spar/spar.hpp>

#ifdef POSITIVE_CONTROL
const auto reduce = spar::compose(spar::storage::coo{}, spar::gather_and_merge{});
#else
const auto reduce = spar::compose(spar::storage::qsgd<8>{}, spar::gather_and_merge{});
#endif
