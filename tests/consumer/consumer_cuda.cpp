// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A user's host code that links spar::cuda. Needs no GPU.
#include <spar/cuda/device_span.hpp>

#include <cuda_runtime_api.h>

int main() {
  float x = 0;
  int version = 0;
  const spar::device_span<float> values(&x, 1);
  return values.size == 1 && cudaRuntimeGetVersion(&version) == cudaSuccess && version == CUDART_VERSION ? 0 : 1;
}
