// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A schedule that keeps the k largest entries needs a selector that defines k.
#include <spar/spar.hpp>

#ifdef POSITIVE_CONTROL
const auto reduce = spar::compose(spar::selector::exact_topk{.k = 10}, spar::balanced_owners{});
#else
const auto reduce = spar::compose(spar::balanced_owners{});
#endif
