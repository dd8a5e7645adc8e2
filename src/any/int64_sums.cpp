// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The compositions for std::int64_t.
#include "compositions.hpp"

SPAR_SUMS_FOR(std::int64_t, std::uint32_t);
SPAR_SUMS_FOR(std::int64_t, std::uint64_t);
SPAR_TREES_FOR(std::int64_t, std::uint32_t);
SPAR_TREES_FOR(std::int64_t, std::uint64_t);
SPAR_SELECTS_FOR(std::int64_t, std::uint32_t);
SPAR_SELECTS_FOR(std::int64_t, std::uint64_t);
