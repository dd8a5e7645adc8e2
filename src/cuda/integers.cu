// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The compositions for integers.
#include "compositions.cuh"

SPAR_DEVICE_ALLREDUCE(std::int32_t, selector::everything);
SPAR_DEVICE_ALLREDUCE(std::int64_t, selector::everything);
