// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The compositions for float with error feedback.
#include "compositions.cuh"

SPAR_DEVICE_FEEDBACK(float);
