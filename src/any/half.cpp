// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The systems for half, where the compiler has this type.
#include "systems.hpp"

#ifdef SPAR_HAS_HALF
SPAR_INSTANTIATE(spar::half);
#endif
