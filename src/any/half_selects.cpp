// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The compositions for half with a selector, where the compiler has this type.
#include "compositions.hpp"

#ifdef SPAR_HAS_HALF
SPAR_SELECTS_FOR(spar::half, std::uint32_t);
SPAR_SELECTS_FOR(spar::half, std::uint64_t);
#endif
