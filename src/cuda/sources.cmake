# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# The sources of the compiled library for values in device memory. Tests compile them, too, for kernels on the host.
set(spar_cuda_sources double.cu float_feedback.cu float_selects.cu float_sums.cu integers.cu interface.cu)
list(TRANSFORM spar_cuda_sources PREPEND "${CMAKE_CURRENT_LIST_DIR}/")
