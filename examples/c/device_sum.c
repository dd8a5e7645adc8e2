// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Two ranks sum values in memory of CUDA devices.
#include <spar/spar_cuda.h>

#include <cuda_runtime_api.h>
#include <stdio.h>

static const char algorithm[] = "ring+bf16";

// Each of the ranks calls this function in a thread of its own.
static int add(spar_comm comm, void* context) {
  float host[1000], *values = NULL;
  int rank = 0, devices = 0;
  (void)context;
  spar_comm_rank(comm, &rank);
  for (int i = 0; i < 1000; ++i) host[i] = (float)(rank + 1);
  if (cudaGetDeviceCount(&devices) != cudaSuccess || cudaSetDevice(rank % devices) != cudaSuccess ||
      cudaMalloc((void**)&values, sizeof host) != cudaSuccess ||
      cudaMemcpy(values, host, sizeof host, cudaMemcpyHostToDevice) != cudaSuccess) {
    fprintf(stderr, "rank %d: %s\n", rank, cudaGetErrorString(cudaGetLastError()));
    return SPAR_ERR_TRANSPORT; // which ends the other ranks
  }
  const int status = spar_device_allreduce(comm, values, 1000, SPAR_FLOAT, SPAR_SUM, algorithm, NULL);
  if (status != SPAR_SUCCESS) fprintf(stderr, "rank %d: %s\n", rank, spar_error_text(comm));
  cudaMemcpy(host, values, sizeof host, cudaMemcpyDeviceToHost); // after the sum, which is in the default stream
  cudaFree(values);
  if (status == SPAR_SUCCESS && rank == 0) printf("%g\n", host[0]);
  return status == SPAR_SUCCESS && host[0] != 3 ? SPAR_ERR_ASSERTION : status;
}

int main(void) {
  if (spar_device_check(SPAR_FLOAT, SPAR_SUM, algorithm) != SPAR_SUCCESS) {
    fprintf(stderr, "%s\n", spar_error_text(NULL));
    return 1;
  }
  return spar_run_threads(2, add, NULL);
}
