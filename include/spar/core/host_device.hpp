// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Marks functions that device code calls as well.
#pragma once

#include <spar/core/compiler.hpp>

/// Compiles a function for the host and, under nvcc, for the device. A user's reduction operation needs this macro only
/// if it reduces values in device memory.
#ifdef __CUDACC__
#define SPAR_HOST_DEVICE __host__ __device__
#else
#define SPAR_HOST_DEVICE
#endif
