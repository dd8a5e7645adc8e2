// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Allreduces of values that stay in device memory: the threads of one process share a GPU. Compile with nvcc.
#include <spar/on_device.cuh>
#include <spar/spar.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

namespace {

constexpr std::size_t n = 1'000'000;

/// One rank's calls. Returns the number of wrong values.
std::size_t reduce(spar::threads& net) {
  cudaStream_t stream = nullptr;
  spar::detail::check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  float* pointer = nullptr;
  spar::detail::check_cuda(cudaMalloc(reinterpret_cast<void**>(&pointer), n * sizeof(float)), "cudaMalloc");
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = static_cast<float>(i % 60);
  spar::detail::check_cuda(cudaMemcpyAsync(pointer, values.data(), n * sizeof(float), cudaMemcpyHostToDevice, stream),
                           "cudaMemcpyAsync");

  spar::on_device gpu(net);                       // one for each rank; all ranks create it together
  spar::device_span gradient(pointer, n, stream); // n values in device memory, and your CUDA stream

  spar::allreduce(gpu, gradient, spar::ring{}, spar::average{});
  spar::allreduce(gpu, gradient, spar::compose(spar::storage::as_bfloat16{}, spar::ring{.piece = 1 << 18}));

  // A sparse stream: the first 1000 of these values at every tenth index.
  constexpr std::size_t count = 1000;
  std::vector<std::uint32_t> every_tenth(count);
  for (std::size_t e = 0; e < count; ++e) every_tenth[e] = static_cast<std::uint32_t>(10 * e);
  std::uint32_t* indices = nullptr;
  spar::detail::check_cuda(cudaMalloc(reinterpret_cast<void**>(&indices), count * sizeof(std::uint32_t)), "cudaMalloc");
  spar::detail::check_cuda(
      cudaMemcpyAsync(indices, every_tenth.data(), count * sizeof(std::uint32_t), cudaMemcpyHostToDevice, stream),
      "cudaMemcpyAsync");
  const auto mine = spar::stream_view<float, std::uint32_t, spar::cuda>::sparse(n, {indices, count}, {pointer, count});
  const auto sum = spar::allreduce(gpu, mine, stream, spar::recursive_doubling{}); // of count() entries, or dense
  std::size_t wrong = sum.count() == count && !sum.is_dense() ? 0 : 1;

  spar::detail::check_cuda(cudaMemcpyAsync(values.data(), pointer, n * sizeof(float), cudaMemcpyDeviceToHost, stream),
                           "cudaMemcpyAsync");
  spar::detail::check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  cudaFree(indices);
  cudaFree(pointer);
  cudaStreamDestroy(stream);
  for (std::size_t i = 0; i < n; ++i) wrong += values[i] != static_cast<float>(net.size()) * static_cast<float>(i % 60);
  return wrong;
}

} // namespace

int main() try {
  spar::thread_group ranks(4);
  std::vector<std::size_t> wrong(4);
  ranks.run([&](spar::threads& net) { wrong[static_cast<std::size_t>(net.rank())] = reduce(net); });
  std::printf("%zu, %zu, %zu and %zu wrong values\n", wrong[0], wrong[1], wrong[2], wrong[3]);
  return wrong[0] + wrong[1] + wrong[2] + wrong[3] == 0 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "on_device: %s\n", error.what());
  return 2;
}
