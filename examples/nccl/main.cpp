// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Collectives of the threads of one process over NCCL, with one GPU for each thread.
#include <spar/collective/allreduce/recursive_doubling.hpp>
#include <spar/collective/allreduce/ring.hpp>
#include <spar/nccl.hpp>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <span>
#include <stdexcept>
#include <vector>

namespace {

constexpr std::size_t n = 100'000;

/// One rank's calls. Returns whether their results are right.
bool reduce(spar::threads& control) {
  if (cudaSetDevice(control.rank()) != cudaSuccess) throw std::runtime_error("each rank needs a GPU of its own");

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

int main() try {
  spar::thread_group ranks(2);
  bool right[2] = {};
  ranks.run([&](spar::threads& control) { right[control.rank()] = reduce(control); });
  std::printf("the results are %s\n", right[0] && right[1] ? "right" : "wrong");
  return right[0] && right[1] ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "nccl: %s\n", error.what());
  return 2;
}
