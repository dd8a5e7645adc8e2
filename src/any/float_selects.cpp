// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The compositions for float with a selector.
#include "compositions.hpp"

SPAR_SELECTS_FOR(float, std::uint32_t);
SPAR_SELECTS_FOR(float, std::uint64_t);
