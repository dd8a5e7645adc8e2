// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A schedule that never sends dense values rejects a storage with a block codec, which would have nothing to encode.
#include <spar/spar.hpp>

using storage = spar::storage::then<spar::storage::coo, spar::storage::as_half>;

#ifdef POSITIVE_CONTROL
const auto reduce = spar::compose(storage{}, spar::recursive_doubling{});
#else
const auto reduce = spar::compose(storage{}, spar::gather_and_merge{});
#endif
