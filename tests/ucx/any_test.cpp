// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The types of <spar/any.hpp> over UCX have the bits and the traffic of the collectives that are templates.
#include "support/processes.hpp"

#include <spar/any_ucx.hpp>
#include <spar/transport/any.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

namespace {

TEST(any_ucx, has_the_bits_and_the_traffic_of_a_communicator_that_is_known) {
  spar::ucx world(spar_test::meeting());
  spar::any_transport net = spar::any_ucx(spar_test::meeting());
  ASSERT_EQ(net.rank(), world.rank());
  ASSERT_EQ(net.size(), world.size());
  EXPECT_TRUE(std::ranges::equal(net.hosts(), spar::hosts_of(world)));
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
  }
}

float sum_of_ones(spar::any_transport& net) {
  std::vector<float> x(3, 1);
  spar::any_allreduce<float>{}(net, x);
  return x[0];
}

/// Parts, one that shrinks, and one that grows by a process that joins: rank 0 of the part leaves and joins again.
TEST(any_ucx, is_divided_shrinks_and_grows) {
  spar::any_transport net = spar::any_ucx(spar_test::meeting());
  spar::any_transport part = net.split(net.rank() % 2, 0);
  EXPECT_EQ(part.size(), (net.size() + 1 - net.rank() % 2) / 2);
  EXPECT_EQ(sum_of_ones(part), static_cast<float>(part.size()));
  EXPECT_FALSE(part.grow());

  net.set_deadline(20);
  spar::any_transport rest = net.shrink();
  EXPECT_TRUE(net.dead());
  EXPECT_THROW((void)net.shrink(), spar::invalid_argument);
  EXPECT_EQ(rest.size(), net.size());
  EXPECT_EQ(rest.deadline(), 20);
  EXPECT_EQ(sum_of_ones(rest), static_cast<float>(net.size()));

  // A thread of the last rank joins, as another process would.
  std::thread joining;
  const bool last = rest.rank() == rest.size() - 1;
  const spar::rank_t wider_size = rest.size() + 1;
  if (last) {
    joining = std::thread([wider_size] {
      spar::any_transport joined = spar::any_ucx_join({.deadline = 60});
      EXPECT_EQ(joined.rank(), wider_size - 1);
      EXPECT_EQ(joined.hosts().size(), static_cast<std::size_t>(wider_size));
      EXPECT_EQ(sum_of_ones(joined), static_cast<float>(wider_size));
    });
  }
  spar::any_transport wider = rest.grow();
  while (!wider) wider = rest.grow();
  EXPECT_EQ(wider.rank(), rest.rank());
  EXPECT_EQ(sum_of_ones(wider), static_cast<float>(wider_size));
  EXPECT_EQ(sum_of_ones(rest), static_cast<float>(rest.size())); // remains as it is
  if (last) joining.join();
}

} // namespace
