// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The CUDA runtime, which is linked with the kernels, or loaded when it is needed.
#pragma once

namespace spar_python {

/// Loads libcudart of the major version of the headers, if it is not linked. Null, or why it cannot be loaded or finds
/// no device.
const char* why_no_cuda_runtime();

} // namespace spar_python
