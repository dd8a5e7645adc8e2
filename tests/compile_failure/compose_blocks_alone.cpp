// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A schedule that sends only entries rejects a storage that encodes only dense blocks.
#include <spar/spar.hpp>

#ifdef POSITIVE_CONTROL
const auto reduce = spar::compose(spar::storage::coo{}, spar::gather_and_merge{});
#else
const auto reduce = spar::compose(spar::storage::qsgd<8>{}, spar::gather_and_merge{});
#endif
