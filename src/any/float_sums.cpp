// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The compositions for float that sum all values.
#include "compositions.hpp"

SPAR_SUMS_FOR(float, std::uint32_t);
