// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A user's kernels and collectives of device memory over NCCL. Runs to its end without a GPU, too.
#include <spar/nccl.hpp>
#include <spar/on_device.cuh>
#include <spar/spar.hpp>

#include <cuda_runtime_api.h>

#include <cstdio>

__global__ void count(float* values, unsigned n) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) values[i] = static_cast<float>(i);
}

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::puts("no GPU");
    return 0;
  }
  bool right = false;
  spar::thread_group(1).run([&](spar::threads& control) {
    spar::nccl net(control);
    spar::on_device gpu(net);
    float* values = nullptr;
    if (cudaMalloc(&values, 256 * sizeof(float)) != cudaSuccess) return;
    count<<<1, 256>>>(values, 256);
    spar::allreduce(gpu, spar::device_span(values, 256), spar::ring{});
    float last = 0;
    cudaMemcpy(&last, values + 255, sizeof(float), cudaMemcpyDeviceToHost);
    right = last == 255;
    cudaFree(values);
  });
  return right ? 0 : 1;
}
