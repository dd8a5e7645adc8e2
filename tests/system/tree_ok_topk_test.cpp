// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ok-Topk on trees: the results are those of flat Ok-Topk, call after call; fewer bytes on narrow links; invalid trees.
#include "support/ranks.hpp"
#include "topology/random_tree.hpp"

#include <spar/tree.hpp>

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace spar_test {
namespace {

using spar::on_tree;
using spar::rank_t;
using spar::tree_plans;

using flat_reducer = spar::ok_topk<float>;
using tree_reducer = spar::ok_topk<float, std::uint32_t, on_tree>;

/// Whole numbers, whose sums are exact, with hardly any ties. Most of them are small; the places of the large ones
/// depend on `step` and, in part, on the rank.
std::vector<float> values_of(rank_t rank, int step, std::size_t n) {
  std::mt19937 random(static_cast<std::uint32_t>(1000 * step + rank));
  std::vector<float> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<float>(static_cast<int>(random() % 2001) - 1000);
  const std::size_t hot = n / 3 + static_cast<std::size_t>(step) * n / 20;
  for (std::size_t i = 0; i < n / 10; ++i) {
    x[(hot + i) % n] += static_cast<float>(random() % 100'000);
    x[(hot + i + static_cast<std::size_t>(rank) * n / 50) % n] -= static_cast<float>(random() % 100'000);
  }
  return x;
}

template <class Reducer>
struct steps {
  std::vector<std::unique_ptr<Reducer>>* reducers;
  std::vector<std::vector<std::vector<float>>>* results; // by rank and step
  std::size_t n;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const auto rank = static_cast<std::size_t>(net.rank());
    for (int step = 0; step < 6; ++step) {
      std::vector<float> x = values_of(net.rank(), step, n);
      auto pending = (*reducers)[rank]->start(net, std::span(x));
      co_await std::move(pending);
      (*results)[rank].push_back(x);
    }
  }
};

template <class Reducer, class... Topology>
std::vector<std::vector<std::vector<float>>> results_of(mode where, rank_t ranks, std::size_t n,
                                                        const Topology&... topology) {
  std::vector<std::unique_ptr<Reducer>> reducers;
  for (rank_t r = 0; r < ranks; ++r) {
    const typename Reducer::algorithm_type options{
        .select = {.density = 0.05, .period = 2, .epsilon = 0}, .store = {}, .over = {topology...}, .by = {.tau = 4}};
    reducers.push_back(std::make_unique<Reducer>(options));
  }
  std::vector<std::vector<std::vector<float>>> results(static_cast<std::size_t>(ranks));
  run(where, ranks, steps<Reducer>{&reducers, &results, n});
  return results;
}

void expect_that_of_flat(const spar::tree& topology, std::size_t n, mode where) {
  const tree_plans plans(topology);
  const auto flat = results_of<flat_reducer>(mode::threads, topology.ranks(), n);
  const auto tree = results_of<tree_reducer>(where, topology.ranks(), n, on_tree(plans));
  for (std::size_t r = 0; r < flat.size(); ++r) {
    ASSERT_EQ(tree[r], flat[0]) << where << ", rank " << r << ", n = " << n << '\n' << topology.picture();
  }
}

TEST(tree_ok_topk, has_the_result_of_flat_ok_topk) {
  for (const mode where : all_modes) {
    std::size_t position = 0;
    for (const auto& ranks : {std::vector{2, 3}, {1, 4}, {3, 3, 4}, {2, 2}}) {
      if (runs_case(2, position_of(where), position++)) expect_that_of_flat(hosts(ranks), 3000, where);
    }
    expect_that_of_flat(spar::tree::flat(5), 3000, where);
    expect_that_of_flat(spar::tree::flat(1), 100, where);
  }
}

TEST(tree_ok_topk, has_the_result_of_flat_ok_topk_on_random_trees) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 40; ++i) {
    const spar::tree topology = random_tree(random, 1 + random() % 12, 1 + static_cast<int>(random() % 4));
    expect_that_of_flat(topology, 100 + random() % 1000, i % 2 == 0 ? mode::threads : mode::sim_synchronous);
    if (HasFatalFailure()) return;
  }
}

TEST(tree_cells, have_the_portions_of_the_plan) {
  std::mt19937_64 random(8);
  for (int i = 0; i < 200; ++i) {
    const spar::tree topology = random_tree(random, 1 + random() % 40, 1 + static_cast<int>(random() % 4));
    const tree_plans plans(topology);
    const auto& cells = plans.cells();
    for (rank_t r = 0; r < topology.ranks(); ++r) {
      double portion = 1; // one over the product of the degrees on the way to the root
      std::size_t at = 0;
      while (topology.leaves_of(topology.nodes()[at]).size() > 1 || !topology.nodes()[at].children.empty()) {
        const auto& node = topology.nodes()[at];
        portion /= static_cast<double>(node.children.size());
        for (const std::size_t c : node.children) {
          for (const rank_t leaf : topology.leaves_of(topology.nodes()[c])) at = leaf == r ? c : at;
        }
      }
      const auto owned = cells.plan()[r];
      const double has = static_cast<double>(cells.portions()[owned.end] - cells.portions()[owned.begin]);
      EXPECT_NEAR(has / static_cast<double>(cells.portions().back()), portion, 1e-7) << topology.picture();
    }
  }
}

/// Counts the bytes that cross the links of hosts in a steady-state call.
template <class Reducer>
struct counted {
  std::vector<std::unique_ptr<Reducer>>* reducers;
  std::vector<std::vector<std::uint64_t>>* bytes; // by sender and receiver
  spar::task<void> operator()(spar::sim& inner) const& {
    spar::counting<spar::sim> net(inner);
    const auto rank = static_cast<std::size_t>(net.rank());
    for (int step = 0; step < 3; ++step) {
      net.reset();
      std::vector<float> x = values_of(net.rank(), 0, 200'000);
      auto pending = (*reducers)[rank]->start(net, std::span(x));
      co_await std::move(pending);
    }
    for (rank_t peer = 0; peer < net.size(); ++peer) {
      (*bytes)[rank][static_cast<std::size_t>(peer)] = net.sent(peer).bytes;
    }
  }
};

/// Bytes on the busiest link of a host, in the direction with more bytes.
template <class Reducer, class... Topology>
std::uint64_t busiest(const spar::tree& topology, const Topology&... policy) {
  const auto p = static_cast<std::size_t>(topology.ranks());
  std::vector<std::unique_ptr<Reducer>> reducers;
  for (std::size_t r = 0; r < p; ++r) {
    const typename Reducer::algorithm_type options{.select = {.density = 0.01}, .store = {}, .over = {policy...}};
    reducers.push_back(std::make_unique<Reducer>(options));
  }
  std::vector<std::vector<std::uint64_t>> bytes(p, std::vector<std::uint64_t>(p));
  run_sim(topology.ranks(), counted<Reducer>{&reducers, &bytes});
  std::uint64_t most = 0;
  for (const std::size_t h : topology.nodes()[0].children) {
    std::uint64_t up = 0, down = 0;
    const auto& host = topology.nodes()[h];
    const auto inside = [&](std::size_t rank) { return rank >= host.first_leaf && rank < host.last_leaf; };
    for (std::size_t a = 0; a < p; ++a) {
      for (std::size_t b = 0; b < p; ++b) {
        if (inside(a) && !inside(b)) up += bytes[a][b];
        if (inside(b) && !inside(a)) down += bytes[a][b];
      }
    }
    most = std::max({most, up, down});
  }
  return most;
}

TEST(tree_ok_topk, sends_less_over_the_links_between_hosts) {
  for (const auto& ranks : {std::vector{2, 3}, {3, 4, 5}, {8, 8, 8, 8}}) {
    const spar::tree topology = hosts(ranks);
    const tree_plans plans(topology);
    const double saved = static_cast<double>(busiest<tree_reducer>(topology, on_tree(plans))) /
                         static_cast<double>(busiest<flat_reducer>(topology));
    EXPECT_LT(saved, ranks.size() == 2 ? 0.85 : 0.7) << topology.picture();
  }
}

TEST(tree_ok_topk, of_other_ranks_or_another_tree_is_refused) {
  const tree_plans one(hosts({2, 1})), other(hosts({1, 2}));
  spar::thread_group two(2), three(3);
  two.run([&](spar::threads& net) {
    tree_reducer reduce{{.select = {.k = 2}, .store = {}, .over = on_tree(one)}};
    std::vector<float> x(10, 1.0F);
    try {
      reduce(net, std::span(x));
      ADD_FAILURE() << "no error";
    } catch (const spar::invalid_argument& e) {
      EXPECT_EQ(std::string(e.what()), "a plan is for 3 ranks, but the number of ranks is 2");
    }
  });
  three.run([&](spar::threads& net) {
    tree_reducer reduce{{.select = {.k = 2}, .store = {}, .over = on_tree(net.rank() == 2 ? other : one)}};
    std::vector<float> x(10, 1.0F);
    std::string text;
    try {
      reduce(net, std::span(x));
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
