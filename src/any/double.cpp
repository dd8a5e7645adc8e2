// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The classes of <spar/any.hpp> for double.
#include "classes.hpp"

SPAR_CLASSES(double);
