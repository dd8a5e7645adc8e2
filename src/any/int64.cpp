// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The systems for std::int64_t.
#include "systems.hpp"

SPAR_INSTANTIATE(std::int64_t);
