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
#include <vector>

namespace {

TEST(any_ucx, has_the_bits_and_the_traffic_of_a_communicator_that_is_known) {
  spar::ucx world(spar_test::meeting());
  std::vector<spar::rank_t> hosts(static_cast<std::size_t>(world.size()), -1);
  spar::any_transport net = spar::any_ucx(spar_test::meeting(), hosts);
  ASSERT_EQ(net.rank(), world.rank());
  ASSERT_EQ(net.size(), world.size());
  EXPECT_EQ(hosts, spar::hosts_of(world));
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

TEST(any_ucx, refuses_room_for_another_number_of_hosts) {
  std::vector<spar::rank_t> hosts(static_cast<std::size_t>(spar_test::meeting().size()) + 1);
  const auto [text, seconds] = spar_test::ending_of([&] { (void)spar::any_ucx(spar_test::meeting(), hosts); });
  EXPECT_NE(text.find("got room for " + std::to_string(hosts.size())), std::string::npos) << text;
}

} // namespace
