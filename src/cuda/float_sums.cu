// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The compositions for float that sum all values.
#include "compositions.cuh"

SPAR_DEVICE_ALLREDUCE(float, selector::everything);
