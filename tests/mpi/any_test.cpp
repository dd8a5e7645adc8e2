// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The types of <spar/any.hpp> over MPI have the bits and the traffic of the collectives that are templates.
#include <spar/any_mpi.hpp>
#include <spar/mpi.hpp>
#include <spar/transport/any.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace {

TEST(any_mpi, has_the_bits_and_the_traffic_of_a_communicator_that_is_known) {
  spar::mpi world;
  spar::any_transport net = spar::any_mpi();
  ASSERT_EQ(net.rank(), world.rank());
  ASSERT_EQ(net.size(), world.size());
  for (const std::size_t n : {std::size_t{2}, std::size_t{5000}}) {
    std::vector<float> x(n);
    for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(i) / static_cast<float>(world.rank() + 3);
    auto y = x;
    spar::allreduce(world, std::span(x));
    const spar::any_allreduce<float> reduce;
    reduce(net, y);
    EXPECT_EQ(x, y);
    EXPECT_EQ(world.last_call().messages_sent, net.last_call().messages_sent);
    EXPECT_EQ(world.last_call().bytes_sent, net.last_call().bytes_sent);

    const std::vector<std::uint32_t> indices{0, static_cast<std::uint32_t>(n - 1)};
    const std::vector<float> values{x[0], 1};
    const auto sum = spar::allreduce(world, spar::sparse_view(n, indices, values));
    auto pending = reduce.start(net, n, indices, values);
    const auto any_sum = pending.wait();
    EXPECT_TRUE(std::ranges::equal(sum.indices(), any_sum.indices()));
    EXPECT_TRUE(std::ranges::equal(sum.values(), any_sum.values()));
    EXPECT_EQ(world.last_call().bytes_sent, net.last_call().bytes_sent);
  }
}

TEST(any_mpi, keeps_a_residual_over_the_tree_of_the_hosts) {
  spar::mpi world;
  spar::any_transport net(world); // refers to the rank
  std::vector<spar::rank_t> hosts(static_cast<std::size_t>(net.size()));
  spar::any_hosts(MPI_COMM_WORLD, hosts);
  EXPECT_EQ(hosts, spar::hosts_of(MPI_COMM_WORLD));
  EXPECT_THROW(spar::any_hosts(MPI_COMM_WORLD, std::span(hosts).first(0)), spar::invalid_argument);
  spar::any_feedback<float> reduce("tree_ok_topk:k=3", hosts);
  std::vector<float> x(100);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  const auto result = reduce.reduce(net, x);
  EXPECT_EQ(result.sum.dimension(), x.size());
  EXPECT_EQ(reduce.residual().size(), x.size());
}

/// One object makes calls over all transports, which are in flight at the same time in each process.
TEST(any_mpi, may_be_used_together_with_threads_and_the_simulator) {
  spar::any_transport net = spar::any_mpi();
  const spar::rank_t ranks = net.size();
  const auto values_of = [](spar::rank_t rank, std::size_t n) {
    std::vector<float> x(n);
    for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(i % 89) / static_cast<float>(rank + 3);
    return x;
  };
  std::vector<spar::rank_t> hosts;
  for (spar::rank_t r = 0; r < ranks; ++r) hosts.push_back(r / 2);
  for (const char* const text : {"ring", "rec_doubling", "rabenseifner", "flexreduce", "ring+bf16"}) {
    SCOPED_TRACE(text);
    const spar::any_allreduce<float> reduce(text, hosts);
    for (const std::size_t n : {std::size_t{3}, std::size_t{20'000}}) {
      std::vector<float> over_mpi = values_of(net.rank(), n);
      auto call = reduce.start(net, over_mpi);

      spar::any_group simulated = spar::any_group::simulated(ranks);
      std::vector<std::vector<float>> of_simulated;
      std::vector<spar::any_pending<void>> calls;
      for (spar::rank_t r = 0; r < ranks; ++r) of_simulated.push_back(values_of(r, n));
      for (spar::rank_t r = 0; r < ranks; ++r)
        calls.push_back(reduce.start(simulated.rank(r), of_simulated[static_cast<std::size_t>(r)]));

      std::vector<std::vector<float>> of_threads(static_cast<std::size_t>(ranks));
      spar::any_group::threads(ranks).run([&](spar::any_transport& thread) {
        auto& x = of_threads[static_cast<std::size_t>(thread.rank())];
        x = values_of(thread.rank(), n);
        reduce(thread, x);
      });
      for (auto& each : calls) each.wait();
      call.wait();
      for (spar::rank_t r = 0; r < ranks; ++r) {
        const auto at = static_cast<std::size_t>(r);
        EXPECT_EQ(of_threads[at], of_simulated[at]);
      }
      EXPECT_EQ(over_mpi, of_threads[static_cast<std::size_t>(net.rank())]);
      const auto of = [](spar::any_transport& on) {
        return std::pair(on.last_call().messages_sent, on.last_call().bytes_sent);
      };
      EXPECT_EQ(of(net), of(simulated.rank(net.rank())));
    }
  }
}

} // namespace
