// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A composition has one part per slot.
#include <spar/spar.hpp>

#ifdef POSITIVE_CONTROL
const auto reduce = spar::compose(spar::ring{}, spar::storage::as_half{});
#else
const auto reduce = spar::compose(spar::ring{}, spar::rabenseifner{});
#endif
