// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The compositions for double.
#include "compositions.cuh"

SPAR_DEVICE_ALLREDUCE(double, selector::everything);
SPAR_DEVICE_ALLREDUCE(double, selector::named_selector);
SPAR_DEVICE_FEEDBACK(double);
