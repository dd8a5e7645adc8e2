// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A user's host code that links spar::nccl. Needs no GPU.
#include <nccl.h>
#include <spar/cuda/device_span.hpp>

int main() {
  const spar::device_span<float> none;
  int version = 0;
  return none.size == 0 && ncclGetVersion(&version) == ncclSuccess && version == NCCL_VERSION_CODE ? 0 : 1;
}
