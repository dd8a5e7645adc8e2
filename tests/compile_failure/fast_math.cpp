// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// -ffast-math gives a warning, which a macro turns off.
#ifdef POSITIVE_CONTROL
#define SPAR_ACCEPT_FAST_MATH
#endif
#include <spar/spar.hpp>
