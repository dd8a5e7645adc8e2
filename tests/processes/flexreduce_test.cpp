// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// FlexReduce over processes: sums over the tree of their hosts and over other trees.
#include "support/processes.hpp"

#include <spar/topology/hosts.hpp>
#include <spar/tree.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace spar_test {
namespace {

void expect_sums(communicator& net, const spar::tree& topology) {
  const spar::tree_plans plans(topology);
  for (const std::size_t n : {0U, 3U, 1000U, 100'000U}) {
    const spar::flex_plan plan(topology, n);
    const auto by_masters = spar::flex_plan::hierarchical(topology, n);
    std::vector<float> x(n);
    std::vector<std::uint32_t> indices;
    std::vector<float> values;
    for (std::size_t i = 0; i < n; ++i) {
      x[i] = static_cast<float>((i + static_cast<std::size_t>(net.rank())) % 7);
      if (x[i] != 6) continue;
      indices.push_back(static_cast<std::uint32_t>(i));
      values.push_back(1);
    }
    const auto sum = spar::allreduce(net, spar::sparse_view(n, indices, values), spar::flexreduce(plan));
    std::vector<float> sixes(n);
    sum.to_dense(sixes, spar::sum{});
    const auto same = spar::allreduce(net, spar::sparse_view(n, indices, values), spar::tree_sparcml(plans));
    std::vector<float> again(n);
    same.to_dense(again, spar::sum{});
    ASSERT_EQ(again, sixes);
    std::vector<float> y(x);
    std::vector<float> z(x);
    spar::allreduce(net, std::span(y), spar::flexreduce(by_masters));
    spar::allreduce(net, std::span(z), spar::tree_dense(plans));
    spar::allreduce(net, std::span(x), spar::flexreduce(plan));
    ASSERT_EQ(y, x);
    ASSERT_EQ(z, x);
    for (std::size_t i = 0; i < n; ++i) {
      float total = 0, count = 0;
      for (std::size_t r = 0; r < static_cast<std::size_t>(net.size()); ++r) {
        total += static_cast<float>((i + r) % 7);
        count += (i + r) % 7 == 6 ? 1.0F : 0.0F;
      }
      ASSERT_EQ(x[i], total) << "index " << i << " of " << n;
      ASSERT_EQ(sixes[i], count) << "index " << i << " of " << n;
    }
  }
}

TEST(processes_flexreduce, over_the_hosts_that_share_memory) {
  communicator net(meeting());
  const std::vector<spar::rank_t> hosts = hosts_of_all(net);
  ASSERT_EQ(hosts.size(), static_cast<std::size_t>(net.size()));
#ifdef SPAR_WITH_MPI
  MPI_Comm here = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
  int neighbours = 0;
  MPI_Comm_size(here, &neighbours);
  MPI_Comm_free(&here);
#else
  const int neighbours = number_of_processes(); // all are on this host
#endif
  const auto alike = std::count(hosts.begin(), hosts.end(), hosts[static_cast<std::size_t>(net.rank())]);
  EXPECT_EQ(alike, neighbours);
  expect_sums(net, spar::tree_of_hosts(hosts));
}

TEST(processes_flexreduce, over_other_trees) {
  communicator net(meeting());
  expect_sums(net, spar::tree::flat(net.size()));
  spar::tree_node uneven; // the first rank alone, the others on a host
  uneven.children.push_back({.rank = 0});
  if (net.size() > 1) uneven.children.emplace_back();
  for (spar::rank_t r = 1; r < net.size(); ++r) uneven.children[1].children.push_back({.rank = r});
  expect_sums(net, spar::tree(uneven));
}

/// The values are whole numbers, so that sums do not depend on the order, and differ, so that there are no ties.
TEST(processes_flexreduce, ok_topk_over_a_tree_has_the_result_of_the_flat_one) {
  communicator net(meeting());
  const spar::tree_plans plans(spar::tree_of_hosts(hosts_of_all(net)));
  const spar::selector::threshold_reuse select{.density = 0.02, .period = 2, .epsilon = 0};
  spar::ok_topk<double> flat{{.select = select, .by = {.tau = 2}}};
  spar::ok_topk<double, std::uint32_t, spar::on_tree> over_tree{
      {.select = select, .store = {}, .over = spar::on_tree(plans), .by = {.tau = 2}}};
  for (std::uint32_t step = 0; step < 4; ++step) {
    std::vector<double> x(20'000);
    for (std::uint32_t i = 0; i < x.size(); ++i) {
      const std::uint32_t hash = (i + 7919 * step + 104729 * static_cast<std::uint32_t>(net.rank())) * 2654435761U;
      x[i] = static_cast<double>(hash) - 2147483648.0;
    }
    std::vector<double> y(x);
    flat(net, std::span(x));
    over_tree(net, std::span(y));
    ASSERT_EQ(y, x) << "step " << step;
  }
}

} // namespace
} // namespace spar_test
