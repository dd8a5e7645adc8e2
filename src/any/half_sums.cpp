// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The compositions for half that sum all values, where the compiler has this type.
#include "compositions.hpp"

#ifdef SPAR_HAS_HALF
SPAR_SUMS_FOR(spar::half, std::uint32_t);
#endif
