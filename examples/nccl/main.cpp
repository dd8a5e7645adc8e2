// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Collectives of the threads of one process over NCCL, with one GPU for each thread: `nccl [RANKS]`. If there are fewer
// GPUs, threads share them, which NCCL allows from version 2.30.3 on with NCCL_MULTI_RANK_GPU_ENABLE=1.
#include <spar/collective/allreduce/recursive_doubling.hpp>
#include <spar/collective/allreduce/ring.hpp>
#include <spar/nccl.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <stdexcept>
#include <vector>

namespace {

constexpr std::size_t n = 100'000;

/// One rank's calls. Returns whether their results are right.
bool reduce(spar::threads& control) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || cudaSetDevice(control.rank() % devices) != cudaSuccess)
    throw std::runtime_error("there is no GPU");

  spar::nccl net(control); // `control`: any spar::threads or spar::mpi; carries headers and small payloads

  std::vector<float> dense(n, 1), sparse(n);
  spar::allreduce(net, std::span(dense), spar::ring{}); // any collective
  for (std::size_t i = 0; i < n; i += 10) sparse[i] = static_cast<float>(i);
  spar::allreduce(net, std::span(sparse),
                  spar::compose(spar::selector::exact_topk{.k = 5000}, spar::recursive_doubling{}));

  const auto ranks = static_cast<float>(net.size());
  return std::count(dense.begin(), dense.end(), ranks) == static_cast<std::ptrdiff_t>(n) &&
         sparse[n - 10] == ranks * static_cast<float>(n - 10) && sparse[10] == 0;
}

} // namespace

int main(int argc, char** argv) try {
  spar::thread_group ranks(argc > 1 ? std::atoi(argv[1]) : 2);
  std::atomic<int> wrong = 0;
  ranks.run([&](spar::threads& control) { wrong += reduce(control) ? 0 : 1; });
  std::printf("%d ranks, %d with wrong results\n", ranks.size(), wrong.load());
  return wrong == 0 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "nccl: %s\n", error.what());
  return 2;
}
