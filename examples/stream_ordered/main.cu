// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sparse gradients over NCCL in the order of CUDA streams, with one GPU for each thread: `stream_ordered [RANKS]`. Each
// step launches one graph, and waits for nothing. If there are fewer GPUs, threads share them, which NCCL allows from
// version 2.30.3 on with NCCL_MULTI_RANK_GPU_ENABLE=1. Compile with nvcc.
#include <spar/stream_ordered.cuh>

#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <vector>

namespace {

using spar::detail::check_cuda;

constexpr std::uint64_t n = 100'000, k = 1000;
constexpr int steps = 100;

/// Makes the gradient of a step, which is the same for all steps and ranks.
__global__ void compute_gradient(float* x) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) x[i] = static_cast<float>(i * 7919 % n);
}

/// One rank's steps. Returns the number of nonzero values after the last one.
std::uint64_t train(spar::threads& control) {
  int devices = 0;
  check_cuda(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  check_cuda(cudaSetDevice(control.rank() % devices), "cudaSetDevice");
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  float* pointer = nullptr;
  check_cuda(cudaMalloc(reinterpret_cast<void**>(&pointer), n * sizeof(float)), "cudaMalloc");
  cudaGraph_t captured = nullptr;
  cudaGraphExec_t step = nullptr;
  std::vector<float> values(n);
  {
    spar::nccl_stream order(control); // one for each rank; all ranks create it together
    auto reduce = spar::with_stream_ordered_feedback<float>(order, n, spar::topka_allreduce{.select = {.k = k}});

    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    compute_gradient<<<(n + 255) / 256, 256, 0, stream>>>(pointer); // your kernels
    reduce(spar::device_span(pointer, n, stream));                  // the gradient becomes the sum of all ranks
    check_cuda(cudaStreamEndCapture(stream, &captured), "cudaStreamEndCapture");
    check_cuda(cudaGraphInstantiate(&step, captured, 0), "cudaGraphInstantiate");

    for (int s = 0; s < steps; ++s) check_cuda(cudaGraphLaunch(step, stream), "cudaGraphLaunch");
    reduce.wait(stream); // waits; throws if a peer, a transfer or a message has failed

    check_cuda(cudaMemcpy(values.data(), pointer, n * sizeof(float), cudaMemcpyDeviceToHost), "cudaMemcpy");
    cudaGraphExecDestroy(step); // before `order`, because NCCL waits for this
    cudaGraphDestroy(captured);
  }
  cudaFree(pointer);
  cudaStreamDestroy(stream);
  std::uint64_t nonzero = 0;
  for (const float v : values) nonzero += v != 0 ? 1 : 0;
  return nonzero;
}

} // namespace

int main(int argc, char** argv) try {
  spar::thread_group ranks(argc > 1 ? std::atoi(argv[1]) : 2);
  std::vector<std::uint64_t> nonzero(static_cast<std::size_t>(ranks.size()));
  ranks.run([&](spar::threads& control) { nonzero[static_cast<std::size_t>(control.rank())] = train(control); });
  for (const std::uint64_t of_rank : nonzero) {
    if (of_rank == 0 || of_rank > k) {
      std::printf("%llu nonzero values, expected 1 to %llu\n", static_cast<unsigned long long>(of_rank),
                  static_cast<unsigned long long>(k));
      return 1;
    }
  }
  std::printf("%d ranks have at most %llu nonzero values each\n", ranks.size(), static_cast<unsigned long long>(k));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "stream_ordered: %s\n", error.what());
  return 2;
}
