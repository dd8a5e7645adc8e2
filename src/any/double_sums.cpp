// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The compositions for double that sum all values.
#include "compositions.hpp"

SPAR_SUMS_FOR(double, std::uint32_t);
