// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Whether the processor that runs the program has AVX2.
#pragma once

#include <spar/core/compiler.hpp>

namespace spar::inline v0_1::kernel::detail {

/// Whether a function with the attribute `gnu::target("avx2,f16c")` can run. All processors with AVX2 have F16C. False
/// in programs of nvcc, whose front end fails for such functions.
inline bool has_avx2() noexcept {
#if defined(__x86_64__) && !defined(__CUDACC__)
  return __builtin_cpu_supports("avx2") != 0;
#else
  return false;
#endif
}

} // namespace spar::inline v0_1::kernel::detail
