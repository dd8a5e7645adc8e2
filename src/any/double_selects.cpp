// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The compositions for double with a selector.
#include "compositions.hpp"

SPAR_SELECTS_FOR(double, std::uint32_t);
SPAR_SELECTS_FOR(double, std::uint64_t);
