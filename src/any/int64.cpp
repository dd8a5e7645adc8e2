// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The classes of <spar/any.hpp> for std::int64_t.
#include "classes.hpp"

SPAR_CLASSES(std::int64_t);
