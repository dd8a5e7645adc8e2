// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Gradients in device memory, reduced over the threads of one process that share a GPU.
#include <spar/cuda.hpp>
#include <spar/system/partial_allreduce.hpp>

#include <cuda_runtime_api.h>

#include <cstdio>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr std::size_t n = 100'000;

/// Throws if a call of CUDA has failed.
void check(cudaError_t code, const char* call) {
  if (code != cudaSuccess) throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(code));
}

/// Steps that go on without the ranks that are late.
void train_eagerly(spar::threads& net, spar::staged<spar::threads>& gpu, spar::device_span<float> gradient) {
  auto reduce = spar::partial_allreduce<float>(net, gradient.size, spar::solo{});
  for (int step = 0; step < 3; ++step)
    gpu.on_host(gradient, [&](std::span<float> x) { reduce(x); });     // the sum of a round
  gpu.on_host(gradient, [&](std::span<float> x) { reduce.drain(x); }); // what came too late for its round
}

/// One rank's steps. Returns the number of nonzero values after them.
std::size_t train(spar::threads& net) {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  float* pointer = nullptr;
  check(cudaMalloc(reinterpret_cast<void**>(&pointer), n * sizeof(float)), "cudaMalloc");
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i)
    values[i] = static_cast<float>((i * 7919 + static_cast<std::size_t>(net.rank())) % 1000);
  check(cudaMemcpy(pointer, values.data(), n * sizeof(float), cudaMemcpyHostToDevice), "cudaMemcpy");
  check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize"); // `stream` does not wait for the default stream

  spar::staged gpu(net);                          // one for each rank; keeps its pinned buffers
  spar::device_span gradient(pointer, n, stream); // n values in device memory, and your CUDA stream

  spar::allreduce(gpu, gradient); // like spar::allreduce(net, values)
  spar::allreduce(gpu, gradient, spar::compose(spar::selector::exact_topk{.k = 1000}, spar::recursive_doubling{}));

  spar::ok_topk<float> reduce(spar::ok_topk_allreduce<>{.select = {.k = 500}}); // the residual is in host memory
  gpu.on_host(gradient, [&](std::span<float> x) { reduce(net, x); });           // any collective

  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  check(cudaMemcpy(values.data(), pointer, n * sizeof(float), cudaMemcpyDeviceToHost), "cudaMemcpy");
  train_eagerly(net, gpu, gradient);
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  cudaFree(pointer);
  cudaStreamDestroy(stream);
  std::size_t nonzero = 0;
  for (const float v : values) nonzero += v != 0 ? 1 : 0;
  return nonzero;
}

} // namespace

int main() try {
  spar::thread_group ranks(3);
  std::vector<std::size_t> nonzero(3);
  ranks.run([&](spar::threads& net) { nonzero[static_cast<std::size_t>(net.rank())] = train(net); });
  std::printf("%zu, %zu and %zu nonzero values\n", nonzero[0], nonzero[1], nonzero[2]);
  return nonzero[0] > 0 && nonzero[0] <= 1000 && nonzero[1] == nonzero[0] && nonzero[2] == nonzero[0] ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "device_memory: %s\n", error.what());
  return 2;
}
