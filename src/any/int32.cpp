// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The systems for std::int32_t.
#include "systems.hpp"

SPAR_INSTANTIATE(std::int32_t);
