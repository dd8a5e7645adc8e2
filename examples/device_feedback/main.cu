// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sparse gradients with error feedback on the device: the threads of one process share a GPU. Compile with nvcc.
#include <spar/cuda_feedback.cuh>
#include <spar/spar.hpp>

#include <cstdio>
#include <exception>
#include <vector>

namespace {

constexpr std::size_t n = 1'000'000;
constexpr int steps = 3;

/// One rank's steps. Returns the number of nonzero values after the last one.
std::size_t train(spar::threads& net) {
  cudaStream_t stream = nullptr;
  spar::detail::check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  float* pointer = nullptr;
  spar::detail::check_cuda(cudaMalloc(reinterpret_cast<void**>(&pointer), n * sizeof(float)), "cudaMalloc");
  std::vector<float> values(n);

  // Gradient, residual and entries stay in device memory.
  spar::on_device gpu(net); // one for each rank; all ranks create it together
  auto reduce =
      spar::with_device_feedback<float>(spar::compose(spar::selector::exact_topk{.k = 1000}, spar::split_allgather{}));
  for (int step = 0; step < steps; ++step) {
    for (std::size_t i = 0; i < n; ++i)
      values[i] = static_cast<float>((i * 7919 + static_cast<std::size_t>(step)) % 1000);
    spar::detail::check_cuda(cudaMemcpyAsync(pointer, values.data(), n * sizeof(float), cudaMemcpyHostToDevice, stream),
                             "cudaMemcpyAsync");
    reduce(gpu, spar::device_span(pointer, n, stream)); // the values become the sum, in the order of the stream
  }

  spar::detail::check_cuda(cudaMemcpyAsync(values.data(), pointer, n * sizeof(float), cudaMemcpyDeviceToHost, stream),
                           "cudaMemcpyAsync");
  spar::detail::check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
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
  return nonzero[0] > 0 && nonzero[0] <= 3000 && nonzero[1] == nonzero[0] && nonzero[2] == nonzero[0] ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "device_feedback: %s\n", error.what());
  return 2;
}
