// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The classes of <spar/any.hpp> for half, where the compiler has this type.
#include "classes.hpp"

#ifdef SPAR_HAS_HALF
SPAR_CLASSES(spar::half);
#endif
