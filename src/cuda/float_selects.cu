// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The compositions for float with a selector.
#include "compositions.cuh"

SPAR_DEVICE_ALLREDUCE(float, selector::named_selector);
