// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The classes of <spar/any.hpp> for std::int32_t.
#include "classes.hpp"

SPAR_CLASSES(std::int32_t);
