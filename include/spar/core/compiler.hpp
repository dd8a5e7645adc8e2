// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Stops the compilation with one sentence where the options of the compiler do not suit spar. Every header includes
// this one first, directly or through another header (scripts/lint/headers.py). Also defines SPAR_HOST_DEVICE.
#pragma once

#if __cplusplus < 202002L
#error spar needs C++20: compile with -std=c++20, or link the CMake target spar::spar, which sets it
#include <spar stops here, because nothing below would compile>
#elif !defined(__cpp_exceptions)
#error spar reports errors by exceptions: compile without -fno-exceptions
#include <spar stops here, because nothing below would compile>
#elif defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ && !defined(SPAR_ACCEPT_FAST_MATH)
#warning -ffast-math voids your own tests for NaN (spar: guarantees, Fast math); silence: -DSPAR_ACCEPT_FAST_MATH
#endif

/// Compiles a function for the host and, under nvcc, for the device. A user's reduction operation needs this macro only
/// if it reduces values in device memory.
#ifdef __CUDACC__
#define SPAR_HOST_DEVICE __host__ __device__
#else
#define SPAR_HOST_DEVICE
#endif

/// Stands before the functions that the compiled library contains: they are `inline`, except in the library itself,
/// and in programs that use it, which do not define them.
#ifdef SPAR_COMPILED
#define SPAR_INLINE
#else
#define SPAR_INLINE inline
#endif
