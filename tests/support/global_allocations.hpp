// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How often the program has called the global operator new. Link global_allocations.cpp, which replaces it.
#pragma once

#include <cstdint>

namespace spar_test {

[[nodiscard]] std::uint64_t global_allocations();

} // namespace spar_test
