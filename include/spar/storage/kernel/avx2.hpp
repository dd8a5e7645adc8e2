// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Whether the processor that runs the program has AVX2 and F16C.
#pragma once

#include <spar/core/compiler.hpp>

namespace spar::inline v0_1::kernel::detail {

/// Whether a function with the attribute `gnu::target("avx2,f16c")` can run. False in programs of nvcc, whose front end
/// fails for such functions.
inline bool has_avx2() noexcept {
#if defined(__x86_64__) && !defined(__CUDACC__)
  // Asks for F16C only once, because a virtual machine takes microseconds for this instruction. clang++ 14 has no
  // builtin function for it.
  static const bool has_f16c = [] {
    unsigned a = 1, b = 0, c = 0, d = 0;
    asm("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    return (c >> 29 & 1) != 0;
  }();
  return has_f16c && __builtin_cpu_supports("avx2") != 0;
#else
  return false;
#endif
}

} // namespace spar::inline v0_1::kernel::detail
