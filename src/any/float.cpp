// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The systems for float.
#include "systems.hpp"

SPAR_INSTANTIATE(float);
