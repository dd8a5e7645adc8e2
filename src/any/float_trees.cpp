// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The compositions for float over a tree, and those with 64-bit indices.
#include "compositions.hpp"

SPAR_SUMS_FOR(float, std::uint64_t);
SPAR_TREES_FOR(float, std::uint32_t);
SPAR_TREES_FOR(float, std::uint64_t);
