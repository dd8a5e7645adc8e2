// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The model of FlexReduce: by hand, against BlueConnect's formula, and against its execution in the simulator.
#include "topology/simulated_cluster.hpp"

#include <spar/model/flex_cost.hpp>
#include <spar/model/tree_cost.hpp>
#include <spar/tree.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace spar_test {
namespace {

using spar::tree;
using spar::tree_node;

tree narrow(const std::vector<int>& ranks_of_each, double latency = 0) {
  return cluster(ranks_of_each, latency, latency);
}

TEST(tree_cost, of_two_and_three_ranks_by_hand) {
  // Level 0: three ranks pass 2/3 of 12 kB at 1e10 B/s in 0.8 us. Level 1: half of 12 kB crosses the narrow link in 60
  // us; the links inside hosts take far less.
  EXPECT_DOUBLE_EQ(spar::seconds_flexreduce(narrow({2, 3}), 12e3), 2 * (0.8e-6 + 60e-6));
  // With latency: two messages on level 0, each over two links, and one on level 1 over four links.
  EXPECT_DOUBLE_EQ(spar::seconds_flexreduce(narrow({2, 3}, 1e-5), 12e3),
                   2 * (2 * (2e-5 + 0.4e-6) + 1 * (4e-5 + 60e-6)));
  EXPECT_DOUBLE_EQ(spar::seconds_ring(narrow({2, 3}), 12e3), 2 * 4 * 12e3 / 5 / 1e8);
  EXPECT_EQ(spar::seconds_flexreduce(tree(tree_node{.rank = 0}), 1e6), 0);
  EXPECT_EQ(spar::seconds_ring(tree(tree_node{.rank = 0}), 1e6), 0);
}

/// Equation 10 of BlueConnect, with degrees and bandwidths by level from the bottom up.
double blueconnect(const std::vector<double>& degrees, const std::vector<double>& bandwidths, double bytes) {
  double seconds = 0;
  for (std::size_t l = 0; l < degrees.size(); ++l) {
    double below = 1, narrowest = 1e300, divided = 1;
    for (std::size_t k = 0; k <= l; ++k) {
      narrowest = std::min(narrowest, bandwidths[k] / divided);
      divided *= degrees[k];
    }
    for (std::size_t i = 0; i < l; ++i) below *= degrees[i];
    seconds += 2 * (degrees[l] - 1) * (bytes / below / (degrees[l] * narrowest));
  }
  return seconds;
}

tree symmetric(const std::vector<double>& degrees, const std::vector<double>& bandwidths) {
  spar::rank_t next = 0;
  const auto make = [&](const auto& self, std::size_t level) -> tree_node {
    tree_node n{.links = {bandwidths[level], 0}};
    for (int c = 0; c < static_cast<int>(degrees[level]); ++c) {
      n.children.push_back(level == 0 ? tree_node{.rank = next++} : self(self, level - 1));
    }
    return n;
  };
  return tree(make(make, degrees.size() - 1));
}

TEST(tree_cost, is_blueconnects_on_symmetric_trees) {
  const std::vector<double> degrees[] = {{4}, {2, 2}, {3, 2}, {2, 5}, {2, 3, 4}, {4, 2, 2}};
  for (const auto& d : degrees) {
    for (const std::vector<double>& w : {std::vector{1e9, 1e9, 1e9}, {1e10, 1e9, 1e8}, {1e8, 1e9, 1e10}}) {
      const std::vector<double> bandwidths(w.begin(), w.begin() + static_cast<std::ptrdiff_t>(d.size()));
      const double expected = blueconnect(d, bandwidths, 1e7);
      EXPECT_NEAR(spar::seconds_flexreduce(symmetric(d, bandwidths), 1e7), expected, 1e-9 * expected);
    }
  }
}

double of_flexreduce(const tree& topology, std::size_t n) {
  const spar::flex_plan plan(topology, n);
  return simulated(topology, n, spar::flexreduce(plan));
}

void expect_time_of_the_model(const tree& topology) {
  const double model = spar::seconds_flexreduce(topology, 4.0 * 60'000);
  EXPECT_NEAR(of_flexreduce(topology, 60'000) / model, 1, 0.05) << topology.picture();
}

TEST(tree_cost, is_the_simulated_time_where_links_are_wider_inside_than_between) {
  for (const double latency : {0.0, 1e-6, 1e-5}) {
    for (const auto& ranks :
         {std::vector{2, 2}, {2, 3}, {3, 3}, {3, 4}, {4, 4}, {1, 5}, {3, 3, 3}, {3, 3, 4}, {3, 4, 4}, {4, 4, 4}}) {
      expect_time_of_the_model(narrow(ranks, latency));
    }
  }
  for (const double latency : {0.0, 1e-6}) expect_time_of_the_model(narrow({8, 2, 3, 5}, latency));
  expect_time_of_the_model(symmetric({2, 3, 4}, {1e10, 1e9, 1e8}));
  expect_time_of_the_model(symmetric({4, 2, 2}, {1e10, 1e9, 1e8}));
}

TEST(tree_cost, of_any_plan_is_its_simulated_time) {
  for (const double latency : {0.0, 1e-6}) {
    for (const tree& topology : {narrow({2, 2}, latency), narrow({2, 3}, latency), narrow({3, 3, 4}, latency),
                                 narrow({8, 2, 3, 5}, latency), symmetric({2, 3, 4}, {1e10, 1e9, 1e8})}) {
      for (const spar::flex_plan& plan : {spar::flex_plan(topology, 60'000), spar::ring_plan(topology, 60'000),
                                          spar::flex_plan::hierarchical(topology, 60'000)}) {
        const double model = spar::seconds_of_plan(topology, plan, 4);
        EXPECT_NEAR(simulated(topology, 60'000, spar::flexreduce(plan)) / model, 1, 0.05)
            << topology.picture() << plan.picture();
      }
    }
  }
}

TEST(tree_cost, of_rabenseifners_algorithm_is_its_simulated_time) {
  for (const double latency : {0.0, 1e-6, 1e-5}) {
    for (const tree& topology : {tree::flat(8, {1e9, latency}), tree::flat(6, {1e9, latency}), narrow({4, 4}, latency),
                                 narrow({2, 2, 2, 2}, latency)}) {
      const double model = spar::seconds_rabenseifner(topology, 4.0 * 60'000);
      EXPECT_NEAR(simulated(topology, 60'000, spar::rabenseifner{}) / model, 1, 0.05) << topology.picture();
    }
  }
}

TEST(tree_cost, of_two_shots_by_hand) {
  // Of 12 kB, each rank sends a half to the other rank of its host in 0.6 us, and a quarter of the 6 kB of the encoded
  // values to the other host, whose link carries that of two ranks in 30 us.
  EXPECT_DOUBLE_EQ(spar::seconds_two_shot(narrow({2, 2}), 12e3, 6e3), 2 * (0.6e-6 + 30e-6));
  // With latency: messages over two and over four links.
  EXPECT_DOUBLE_EQ(spar::seconds_two_shot(narrow({2, 2}, 1e-5), 12e3, 6e3), 2 * (2e-5 + 0.6e-6 + 4e-5 + 30e-6));
  // On hosts with two ranks and one, a rank sends all 12 kB to the owner on its host, and each of the two owners half
  // of the 6 kB of the encoded sum to the other.
  EXPECT_DOUBLE_EQ(spar::seconds_two_shot(narrow({2, 1}), 12e3, 6e3), 2 * (1.2e-6 + 30e-6));
  EXPECT_EQ(spar::seconds_two_shot(tree(tree_node{.rank = 0}), 1e6, 1e6), 0);
}

TEST(tree_cost, of_two_shots_is_its_simulated_time) {
  const spar::storage::qsgd<8> codec;
  for (const double latency : {0.0, 1e-6, 1e-5, 1e-4}) {
    for (const std::size_t n : {1000U, 60'000U, 1'000'000U}) {
      for (const std::vector<int>& ranks :
           {std::vector{1, 1, 1, 1}, {2, 2}, {3, 3}, {4, 4}, {2, 2, 2}, {2, 3}, {1, 5}}) {
        const spar::tree_plans plans(narrow(ranks, latency));
        const auto encoded = static_cast<double>(codec.encoded_bytes<float>(n));
        const double model = spar::seconds_two_shot(plans.topology(), 4.0 * static_cast<double>(n), encoded);
        const double time =
            simulated(plans.topology(), n, spar::compose(codec, spar::on_tree(plans), spar::two_shot{}));
        EXPECT_LT(time / model, 1.05) << n << plans.topology().picture();
        // Where latency matters, a rank whose messages arrive early begins the second shot before other ranks end the
        // first. On unequal hosts, much is sent inside hosts, and during the messages between them.
        const double hop = 2 * 2 * latency; // over four links
        EXPECT_GT(time / model, hop > 0.02 * model || ranks[0] != ranks[1] ? 0.7 : 0.95)
            << n << plans.topology().picture();
      }
    }
  }
}

/// A link with a tenth of the others' bandwidth dominates: only one hop over fast links adds to it, in each direction.
TEST(tree_cost, of_a_slow_link_is_its_simulated_time) {
  for (const int ranks : {3, 4, 8}) {
    tree_node root{.links = {.bandwidth = 1e9, .latency = 0}};
    for (spar::rank_t r = 0; r < ranks; ++r) root.children.push_back({.rank = r});
    root.children[1].link = {.bandwidth = 1e8, .latency = 0};
    const double model = spar::seconds_flexreduce(tree(root), 4.0 * 67'200);
    EXPECT_GE(of_flexreduce(tree(root), 67'200), model) << ranks << " ranks";
    EXPECT_LE(of_flexreduce(tree(root), 67'200), 1.15 * model) << ranks << " ranks";
  }
}

/// In the model, on each level all ranks wait for the slowest latency, but hosts with few ranks finish earlier.
TEST(tree_cost, is_a_bound_where_latencies_decide_and_hosts_differ) {
  const tree topology = narrow({8, 2, 3, 5}, 1e-5);
  const double model = spar::seconds_flexreduce(topology, 4.0 * 60'000);
  EXPECT_LT(of_flexreduce(topology, 60'000), model);
  EXPECT_GT(of_flexreduce(topology, 60'000), 0.9 * model);
}

} // namespace
} // namespace spar_test
