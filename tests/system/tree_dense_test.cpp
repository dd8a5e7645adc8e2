// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The choice among ring, Rabenseifner's algorithm, BlueConnect and FlexReduce on a tree, and with a codec also
// `two_shot`, is the fastest in the simulator, or nearly so, and all of them compute the sum.
#include "topology/simulated_cluster.hpp"

#include <spar/tree.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace spar_test {
namespace {

using spar::tree;
using spar::tree_choice;
using spar::tree_plans;
using tree_dense = decltype(spar::tree_dense(std::declval<const tree_plans&>()));

/// A cluster with a tenth of the latency inside hosts.
tree hosts_at(const std::vector<int>& ranks_of_each, double latency) {
  return cluster(ranks_of_each, latency, latency / 10);
}

TEST(tree_dense, chooses_the_fastest_in_the_simulator) {
  std::set<tree_choice> chosen;
  for (const double latency : {1e-7, 1e-5, 1e-3}) {
    for (const std::size_t n : {100U, 60'000U}) {
      for (const tree& topology :
           {hosts_at({2, 3}, latency), hosts_at({4, 4}, latency), hosts_at({3, 3, 4}, latency),
            tree::flat(8, {1e9, latency}), tree::flat(7, {1e9, latency}), hosts_at({2, 2, 2, 2}, latency)}) {
        const tree_plans plans(topology);
        chosen.insert(plans.choice(n * sizeof(float)));
        const spar::flex_plan by_tree(topology, n), around = spar::ring_plan(topology, n);
        const double best =
            std::min({simulated(topology, n, spar::flexreduce(by_tree)),
                      simulated(topology, n, spar::flexreduce(around)), simulated(topology, n, spar::rabenseifner{})});
        EXPECT_LE(simulated(topology, n, spar::tree_dense(plans)), 1.05 * best)
            << "n = " << n << ", latency " << latency << '\n'
            << topology.picture();
      }
    }
  }
  EXPECT_EQ(chosen.size(), 4U) << "each of the four must be the fastest somewhere";
}

TEST(tree_dense, chooses_the_fastest_with_a_codec) {
  const spar::storage::qsgd<8> codec;
  std::set<tree_choice> chosen;
  for (const double latency : {0.0, 1e-6, 1e-4}) {
    for (const std::size_t n : {1000U, 60'000U, 500'000U}) {
      for (const tree& topology : {hosts_at({2, 3}, latency), hosts_at({4, 4}, latency), hosts_at({3, 3, 4}, latency),
                                   tree::flat(5, {1e9, latency}), hosts_at({2, 2, 2}, latency)}) {
        const tree_plans plans(topology);
        const tree_choice choice = plans.choice(4 * n, codec.encoded_bytes<float>(n));
        chosen.insert(choice);
        const spar::flex_plan by_tree(topology, n), around = spar::ring_plan(topology, n);
        const double by_levels = simulated(topology, n, spar::flexreduce(by_tree, codec)),
                     by_ring = simulated(topology, n, spar::flexreduce(around, codec)),
                     in_two = simulated(topology, n, spar::compose(codec, spar::on_tree(plans), spar::two_shot{}));
        const double time = simulated(topology, n, spar::compose(codec, spar::on_tree(plans), spar::cheapest{}));
        EXPECT_LE(time, 1.06 * std::min({by_levels, by_ring, in_two})) << "n = " << n << '\n' << topology.picture();
        EXPECT_EQ(time, choice == tree_choice::two_shot ? in_two : choice == tree_choice::ring ? by_ring : by_levels);
      }
    }
  }
  EXPECT_EQ(chosen,
            (std::set{tree_choice::ring, tree_choice::blueconnect, tree_choice::flexreduce, tree_choice::two_shot}));
}

TEST(tree_dense, sums_whatever_is_chosen) {
  for (const mode where : all_modes) {
    for (const tree& topology :
         {hosts_at({2, 3}, 1e-7), hosts_at({2, 2}, 1e-7), tree::flat(4, {1e9, 1e-7}), tree::flat(4, {1e9, 1e-3})}) {
      for (const std::size_t n : {0U, 1U, 1000U, 60'000U}) {
        const tree_plans plans(topology);
        const auto p = static_cast<std::size_t>(topology.ranks());
        std::vector<std::vector<float>> x(p, std::vector<float>(n));
        for (std::size_t r = 0; r < p; ++r)
          for (std::size_t i = 0; i < n; ++i) x[r][i] = static_cast<float>(r + i % 5);
        run(where, topology.ranks(), reduce_with<tree_dense>{spar::tree_dense(plans), &x});
        for (std::size_t i = 0; i < n; ++i) {
          const auto total = static_cast<float>(p * (p - 1) / 2 + p * (i % 5));
          for (const auto& mine : x) ASSERT_EQ(mine[i], total) << where << ", n = " << n;
        }
      }
    }
  }
}

TEST(tree_dense, plans_for_others_are_refused_and_other_choices_found_out) {
  const tree near = tree::flat(7, {1e9, 1e-9}), far = tree::flat(7, {1e9, 1e-3});
  const tree_plans by_ring(near), by_halving(far), of_others(tree::flat(6));
  ASSERT_EQ(by_halving.choice(1000 * sizeof(float)), tree_choice::rabenseifner);
  ASSERT_NE(by_ring.choice(1000 * sizeof(float)), tree_choice::rabenseifner);
  spar::thread_group alike(7), group(7);
  alike.run([&](spar::threads& net) {
    std::vector<float> few(10, 1.0F);
    spar::allreduce(net, std::span(few), spar::tree_dense(by_ring)); // the plans work for any number of values
    EXPECT_EQ(few, std::vector<float>(10, 7.0F));
  });
  group.run([&](spar::threads& net) {
    std::vector<float> x(1000);
    EXPECT_THROW(spar::allreduce(net, std::span(x), spar::tree_dense(of_others)), spar::invalid_argument);
    std::string text;
    try {
      spar::allreduce(net, std::span(x), spar::tree_dense(net.rank() == 1 ? by_ring : by_halving));
    } catch (const spar::mismatch& e) {
      text = e.what();
    } catch (const spar::peer_failed& e) {
      text = e.what();
    }
    EXPECT_NE(text.find("ranks disagree on the algorithm"), std::string::npos) << text;
  });
}

} // namespace
} // namespace spar_test
