// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The compositions for half over a tree, and those with 64-bit indices, where the compiler has this type.
#include "compositions.hpp"

#ifdef SPAR_HAS_HALF
SPAR_SUMS_FOR(spar::half, std::uint64_t);
SPAR_TREES_FOR(spar::half, std::uint32_t);
SPAR_TREES_FOR(spar::half, std::uint64_t);
#endif
