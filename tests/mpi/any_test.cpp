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

} // namespace
