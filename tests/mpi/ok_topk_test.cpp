// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ok-Topk with its state gives the same results over MPI as for ranks in one process.
#include <spar/mpi.hpp>

#include <gtest/gtest.h>
#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace spar_test {
namespace {

constexpr std::size_t n = 20000;
constexpr int steps = 6;
const spar::ok_topk_allreduce<> options{.select = {.density = 0.02, .period = 2}, .by = {.tau = 3}};

std::vector<float> gradient(spar::rank_t rank, int step) {
  std::mt19937_64 random(static_cast<std::uint64_t>(rank) * 100 + static_cast<std::uint64_t>(step));
  std::vector<float> x(n);
  for (float& value : x) {
    const float uniform = static_cast<float>(random() % 2001) / 1000 - 1;
    value = uniform * uniform * uniform;
  }
  return x;
}

/// The sums of all steps, one after the other, and the last residual.
template <class Net>
std::vector<float> train(Net& net) {
  spar::ok_topk<float> reduce{options};
  std::vector<float> all;
  for (int step = 0; step < steps; ++step) {
    std::vector<float> x = gradient(net.rank(), step);
    reduce(net, std::span<float>(x));
    all.insert(all.end(), x.begin(), x.end());
  }
  all.insert(all.end(), reduce.residual().begin(), reduce.residual().end());
  return all;
}

TEST(mpi_ok_topk, gives_what_ranks_in_one_process_get) {
  spar::mpi net{MPI_COMM_WORLD};
  const auto over_mpi = train(net);
  std::vector<std::vector<float>> in_process(static_cast<std::size_t>(net.size()));
  spar::thread_group group{net.size()};
  group.run([&](spar::threads& other) { in_process[static_cast<std::size_t>(other.rank())] = train(other); });
  EXPECT_EQ(over_mpi, in_process[static_cast<std::size_t>(net.rank())]);
}

} // namespace
} // namespace spar_test
