// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// FlexReduce: sums over any tree on every transport, the bytes on the links, and errors for ranks or values that do not
// match the plan.
#include "support/ranks.hpp"
#include "support/streams.hpp"
#include "topology/random_tree.hpp"

#include <spar/tree.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace spar_test {
namespace {

using spar::flex_plan;
using spar::rank_t;

template <class T>
using vectors = std::vector<std::vector<T>>;

template <class T, class Op = spar::sum>
struct reduce {
  const flex_plan* plan;
  vectors<T>* x;
  int times = 1;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const std::span<T> mine((*x)[static_cast<std::size_t>(net.rank())]);
    for (int i = 0; i < times; ++i) {
      auto pending = spar::start_allreduce(net, mine, spar::flexreduce(*plan), Op{});
      co_await std::move(pending);
    }
  }
};

template <class T>
vectors<T> some_values(rank_t ranks, std::size_t n) {
  vectors<T> x(static_cast<std::size_t>(ranks), std::vector<T>(n));
  for (std::size_t r = 0; r < x.size(); ++r)
    for (std::size_t i = 0; i < n; ++i) x[r][i] = static_cast<T>(static_cast<int>((7 * r + 3 * i) % 9) - 4);
  return x;
}

/// The sum of small integers is exact.
template <class T>
std::vector<T> sum_of(const vectors<T>& all) {
  std::vector<T> total(all[0].size());
  for (const auto& x : all)
    for (std::size_t i = 0; i < x.size(); ++i) total[i] = static_cast<T>(total[i] + x[i]);
  return total;
}

template <class T>
void expect_sums(const spar::tree& topology, std::size_t n, mode where) {
  const flex_plan plan(topology, n);
  auto x = some_values<T>(plan.ranks(), n);
  const auto total = sum_of(x);
  run(where, plan.ranks(), reduce<T>{&plan, &x});
  for (std::size_t r = 0; r < x.size(); ++r) {
    ASSERT_EQ(x[r], total) << where << ", n = " << n << ", rank " << r << '\n' << topology.picture();
  }
}

TEST(flexreduce, sums_over_a_flat_tree_of_any_number_of_ranks) {
  for (const mode where : all_modes)
    for (const rank_t ranks : all_ranks)
      for (const std::size_t n : {0U, 1U, 12U, 5000U}) expect_sums<float>(spar::tree::flat(ranks), n, where);
}

TEST(flexreduce, sums_over_hosts) {
  for (const mode where : all_modes) {
    for (const auto& ranks : {std::vector{2, 3}, {2, 2}, {1, 4}, {3, 3, 4}, {4, 1, 1}, {1, 1}}) {
      for (const std::size_t n : {0U, 3U, 12U, 5000U}) expect_sums<float>(hosts(ranks), n, where);
    }
  }
}

TEST(flexreduce, sums_over_many_ranks) {
  expect_sums<float>(hosts({8, 8, 8, 8, 8, 8, 8, 8}), 3000, mode::sim);
  expect_sums<float>(hosts(std::vector<int>(64, 4)), 3000, mode::sim_synchronous);
  expect_sums<float>(spar::tree::flat(64), 100, mode::sim);
}

TEST(flexreduce, sums_over_random_trees) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 150; ++i) {
    const spar::tree topology = random_tree(random, 1 + random() % 24, 1 + static_cast<int>(random() % 4), i % 4 < 2);
    expect_sums<double>(topology, random() % 3000, i % 2 == 0 ? mode::threads : mode::sim_synchronous);
    if (HasFatalFailure()) return;
  }
}

TEST(flexreduce, sums_of_other_types_and_a_large_vector) {
  expect_sums<std::int32_t>(hosts({2, 3}), 1000, mode::threads);
  expect_sums<std::int64_t>(hosts({3, 1}), 1000, mode::sim);
  expect_sums<float>(hosts({2, 3}), 300'000, mode::threads);
}

template <class Op>
struct reduce_streams {
  const flex_plan* plan;
  const std::vector<contribution<float, std::uint32_t>>* mine;
  std::vector<std::vector<float>>* sums;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const auto rank = static_cast<std::size_t>(net.rank());
    auto pending = spar::start_allreduce(net, (*mine)[rank].view(), spar::flexreduce(*plan), Op{});
    const auto sum = co_await std::move(pending);
    (*sums)[rank].resize(plan->dimension());
    sum.to_dense((*sums)[rank], spar::sum{});
    (*sums)[rank].push_back(sum.view().is_dense() ? 1.0F : 0.0F); // the representation is part of the result
  }
};

struct reduce_by_quantiles {
  const spar::tree_plans* plans;
  const std::vector<contribution<float, std::uint32_t>>* mine;
  std::vector<std::vector<float>>* sums;
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    const auto rank = static_cast<std::size_t>(net.rank());
    auto pending = spar::start_allreduce(net, (*mine)[rank].view(), spar::tree_sparcml(*plans));
    const auto sum = co_await std::move(pending);
    (*sums)[rank].resize((*mine)[rank].view().dimension());
    sum.to_dense((*sums)[rank], spar::sum{});
    (*sums)[rank].push_back(sum.view().is_dense() ? 1.0F : 0.0F); // the representation is part of the result
  }
};

void expect_stream_sums(const spar::tree& topology, pattern shape, std::uint64_t n, mode where) {
  const flex_plan plan(topology, n);
  const auto mine = contributions<float, std::uint32_t>(shape, plan.ranks(), n, 1, exact_value<float>);
  std::vector<float> total(n);
  for (const auto& c : mine) {
    std::vector<float> x(n);
    c.view().to_dense(x, spar::sum{});
    for (std::size_t i = 0; i < n; ++i) total[i] += x[i];
  }
  std::vector<std::vector<float>> sums(static_cast<std::size_t>(plan.ranks()));
  run(where, plan.ranks(), reduce_streams<spar::sum>{&plan, &mine, &sums});
  total.push_back(sums[0].back());
  for (const auto& sum : sums) ASSERT_EQ(sum, total) << where << ", " << shape << '\n' << topology.picture();
}

TEST(flexreduce, sums_of_streams) {
  for (const mode where : all_modes) {
    for (const pattern shape : all_patterns) {
      for (const rank_t ranks : {1, 2, 5}) expect_stream_sums(spar::tree::flat(ranks), shape, 1000, where);
      for (const auto& ranks : {std::vector{2, 3}, {1, 4}, {3, 3, 4}}) {
        expect_stream_sums(hosts(ranks), shape, 1000, where);
        expect_stream_sums(hosts(ranks), shape, 3, where);
      }
      expect_stream_sums(hosts({2, 3}), pattern::empty, 0, where);
    }
  }
}

TEST(flexreduce, sums_of_streams_over_random_trees) {
  std::mt19937_64 random(4);
  for (int i = 0; i < 100; ++i) {
    const spar::tree topology = random_tree(random, 1 + random() % 24, 1 + static_cast<int>(random() % 4));
    expect_stream_sums(topology, all_patterns[random() % std::size(all_patterns)], 1 + random() % 2000,
                       i % 2 == 0 ? mode::threads : mode::sim_synchronous);
    if (HasFatalFailure()) return;
  }
}

/// Entries in a few places of a tree with three levels: some of the ranges that ranks receive on the way down are full,
/// others are not.
TEST(flexreduce, of_streams_has_the_same_form_on_every_rank) {
  spar::tree_node root;
  rank_t next = 0;
  for (int half = 0; half < 2; ++half) {
    spar::tree_node& switches = root.children.emplace_back();
    for (const int ranks : {2, 3}) {
      spar::tree_node& host = switches.children.emplace_back();
      for (int r = 0; r < ranks; ++r) host.children.push_back({.rank = next++});
    }
  }
  const flex_plan plan(spar::tree(root), 1200);
  std::vector<contribution<float, std::uint32_t>> mine;
  for (rank_t r = 0; r < next; ++r) {
    auto& its = mine.emplace_back();
    its.n = 1200;
    for (const auto& [begin, end] : {std::pair(425U, 500U), {500U, 550U}, {600U, 650U}, {700U, 775U}}) {
      for (std::uint32_t i = begin; i < end; ++i) {
        if (i % 10 == static_cast<std::uint32_t>(r)) its.indices.push_back(i), its.values.push_back(1);
      }
    }
  }
  std::vector<std::vector<float>> sums(static_cast<std::size_t>(next));
  run(mode::sim, next, reduce_streams<spar::sum>{&plan, &mine, &sums});
  for (const auto& sum : sums) EXPECT_EQ(sum, sums[0]);
}

/// With owners chosen by where the entries are, for all patterns.
TEST(tree_sparcml, sums_of_streams_over_random_trees) {
  std::mt19937_64 random(14);
  for (int i = 0; i < 100; ++i) {
    const spar::tree topology = random_tree(random, 1 + random() % 16, 1 + static_cast<int>(random() % 4));
    const spar::tree_plans plans(topology);
    const std::uint64_t n = random() % 10 == 0 ? 0 : 1 + random() % 2000;
    const auto ranks = topology.ranks();
    const auto mine = contributions<float, std::uint32_t>(
        all_patterns[static_cast<std::size_t>(i) % std::size(all_patterns)], ranks, n, 1, exact_value<float>);
    std::vector<float> total(n);
    for (const auto& c : mine) {
      std::vector<float> x(n);
      c.view().to_dense(x, spar::sum{});
      for (std::size_t e = 0; e < n; ++e) total[e] += x[e];
    }
    std::vector<std::vector<float>> sums(static_cast<std::size_t>(ranks));
    run(i % 2 == 0 ? mode::threads : mode::sim_synchronous, ranks, reduce_by_quantiles{&plans, &mine, &sums});
    total.push_back(sums[0].back());
    for (const auto& sum : sums) ASSERT_EQ(sum, total) << "case " << i << '\n' << topology.picture();
  }
}

/// Counts the bytes that ranks send to other hosts in an allreduce of streams with the same indices on all ranks.
template <class Algorithm>
struct counted_streams {
  const Algorithm* algorithm;
  const std::vector<int>* host_of;
  const std::vector<contribution<float, std::uint32_t>>* mine;
  std::uint64_t* bytes;
  spar::task<void> operator()(spar::sim& inner) const& {
    spar::counting<spar::sim> net(inner);
    const auto rank = static_cast<std::size_t>(net.rank());
    auto pending = spar::start_allreduce(net, (*mine)[rank].view(), *algorithm);
    (void)co_await std::move(pending);
    for (rank_t peer = 0; peer < net.size(); ++peer) {
      if ((*host_of)[static_cast<std::size_t>(peer)] != (*host_of)[rank]) *bytes += net.sent(peer).bytes;
    }
  }
};

TEST(flexreduce, merges_streams_inside_hosts_before_they_cross_the_links_between) {
  const std::vector<int> host_of{0, 0, 0, 1, 1, 1, 2, 2, 2, 2};
  const spar::tree topology = hosts({3, 3, 4});
  const flex_plan plan(topology, 20'000);
  const spar::tree_plans plans(topology);
  const auto mine = contributions<float, std::uint32_t>(pattern::identical, 10, 20'000, 1, exact_value<float>);
  const auto bytes_of = [&]<class Algorithm>(const Algorithm& algorithm) {
    std::uint64_t bytes = 0;
    run_sim(10, counted_streams<Algorithm>{&algorithm, &host_of, &mine, &bytes});
    return static_cast<double>(bytes);
  };
  const double flat = bytes_of(spar::ssar_split{});
  EXPECT_LT(bytes_of(spar::flexreduce(plan)), 0.4 * flat);
  EXPECT_LT(bytes_of(spar::tree_sparcml(plans)), 0.4 * flat);
}

TEST(flexreduce, other_operations) {
  const flex_plan plan(hosts({2, 3}), 100);
  auto x = some_values<float>(5, 100);
  auto largest = x[0];
  for (const auto& mine : x)
    for (std::size_t i = 0; i < mine.size(); ++i) largest[i] = std::max(largest[i], mine[i]);
  run(mode::threads, 5, reduce<float, spar::maximum>{&plan, &x});
  for (const auto& mine : x) EXPECT_EQ(mine, largest);

  x = some_values<float>(5, 100);
  auto mean = sum_of(x);
  for (float& value : mean) value /= 5;
  run(mode::sim, 5, reduce<float, spar::average>{&plan, &x});
  for (const auto& mine : x) EXPECT_EQ(mine, mean);
}

TEST(flexreduce, has_the_same_bits_on_every_rank_and_in_every_order_of_arrival) {
  const flex_plan plan(hosts({2, 3, 4}), 1000);
  vectors<float> first;
  for (const std::uint64_t seed : {1U, 2U, 3U, 4U}) {
    vectors<float> x(9, std::vector<float>(1000));
    std::mt19937_64 random(9);
    for (auto& mine : x)
      for (float& value : mine) value = static_cast<float>(random() % 1000003) * 1e-3F;
    run_sim<spar::any_transport>(9, reduce<float>{&plan, &x}, random_order(seed));
    for (const auto& mine : x) ASSERT_EQ(mine, x[0]);
    if (first.empty()) first = x;
    ASSERT_EQ(x, first);
  }
}

TEST(flexreduce, of_streams_has_the_same_bits_in_every_order_of_arrival) {
  const flex_plan plan(hosts({2, 3, 4}), 2000);
  const auto mine = contributions<float, std::uint32_t>(pattern::random, 9, 2000, 1, real_value<float>);
  std::vector<std::vector<float>> first;
  for (const std::uint64_t seed : {1U, 2U, 3U, 4U}) {
    std::vector<std::vector<float>> sums(9);
    run_sim<spar::any_transport>(9, reduce_streams<spar::sum>{&plan, &mine, &sums}, random_order(seed));
    for (const auto& sum : sums) ASSERT_EQ(sum, sums[0]);
    if (first.empty()) first = sums;
    ASSERT_EQ(sums, first);
  }
}

/// A composition with a plan for another number of values is an error before any value changes.
TEST(flexreduce, in_a_composition) {
  const flex_plan plan(hosts({2, 1}), 10);
  const auto composed = spar::compose(spar::selector::nonzeros{}, spar::on_plan(plan), spar::chains{});
  spar::thread_group good{3};
  good.run([&](spar::threads& net) {
    std::vector<float> x(10, 1.0F);
    spar::allreduce(net, std::span(x), composed);
    EXPECT_EQ(x, std::vector<float>(10, 3.0F));
    const auto of_largest = spar::compose(spar::selector::exact_topk{.k = 10}, spar::on_plan(plan), spar::chains{});
    auto top = spar::with_error_feedback<float>(of_largest);
    top(net, std::span(x));
    EXPECT_EQ(x, std::vector<float>(10, 9.0F));
  });
  for (const std::size_t n : {9U, 20U}) {
    spar::thread_group group{3};
    group.run([&](spar::threads& net) {
      std::vector<float> x(n, 1.0F);
      EXPECT_THROW(spar::allreduce(net, std::span(x), composed), spar::error);
    });
  }
  spar::thread_group two{2};
  two.run([&](spar::threads& net) {
    std::vector<float> x(10, 1.0F);
    EXPECT_THROW(spar::allreduce(net, std::span(x), composed), spar::error);
  });
}

/// Counts the bytes from each rank to each other rank.
struct counted {
  const flex_plan* plan;
  vectors<float>* x;
  std::vector<std::vector<std::uint64_t>>* bytes; // by sender and receiver
  spar::task<void> operator()(spar::sim& inner) const& {
    spar::counting<spar::sim> net(inner);
    const auto rank = static_cast<std::size_t>(net.rank());
    auto pending = spar::start_allreduce(net, std::span<float>((*x)[rank]), spar::flexreduce(*plan));
    co_await std::move(pending);
    for (rank_t peer = 0; peer < net.size(); ++peer) {
      (*bytes)[rank][static_cast<std::size_t>(peer)] = net.sent(peer).bytes;
    }
  }
};

TEST(flexreduce, sends_what_the_model_says_over_each_hosts_link) {
  for (const auto& ranks : {std::vector{2, 2}, {2, 3}, {3, 3}, {3, 4}, {4, 4}, {3, 3, 4}, {3, 4, 4}, {4, 4, 4}}) {
    const spar::tree topology = hosts(ranks);
    const std::size_t n = 5040;
    const flex_plan plan(topology, n);
    auto x = some_values<float>(plan.ranks(), n);
    const auto p = static_cast<std::size_t>(plan.ranks());
    std::vector<std::vector<std::uint64_t>> bytes(p, std::vector<std::uint64_t>(p));
    run_sim(plan.ranks(), counted{&plan, &x, &bytes});
    const std::uint64_t model = 2 * 4 * n * (ranks.size() - 1) / ranks.size(); // reduce-scatter and allgather
    for (const std::size_t h : topology.nodes()[0].children) {
      std::uint64_t up = 0, down = 0;
      const auto& host = topology.nodes()[h];
      for (std::size_t a = 0; a < p; ++a) {
        for (std::size_t b = 0; b < p; ++b) {
          const bool from = a >= host.first_leaf && a < host.last_leaf;
          const bool to = b >= host.first_leaf && b < host.last_leaf;
          if (from && !to) up += bytes[a][b];
          if (to && !from) down += bytes[a][b];
        }
      }
      EXPECT_EQ(up, model) << topology.picture();
      EXPECT_EQ(down, model) << topology.picture();
    }
  }
}

/// The ring sends and receives 2 n (d - 1) / d values over each link; a rank that is first in the chains sends and
/// receives only n.
TEST(flexreduce, sends_the_least_over_a_slow_link) {
  spar::tree_node root{.links = {.bandwidth = 1e9}};
  for (rank_t r = 0; r < 5; ++r) root.children.push_back({.rank = r});
  root.children[3].link = {.bandwidth = 1e8};
  const std::size_t n = 5000;
  const flex_plan plan{spar::tree(root), n};
  auto x = some_values<float>(5, n);
  const auto total = sum_of(x);
  std::vector<std::vector<std::uint64_t>> bytes(5, std::vector<std::uint64_t>(5));
  run_sim(5, counted{&plan, &x, &bytes});
  std::uint64_t sent = 0, received = 0;
  for (std::size_t r = 0; r < 5; ++r) {
    EXPECT_EQ(x[r], total);
    sent += bytes[3][r];
    received += bytes[r][3];
    const auto of_another = std::accumulate(bytes[r].begin(), bytes[r].end(), std::uint64_t{0});
    // At most n values in each half, less the chain that the rank ends in the first half.
    EXPECT_LE(of_another, 4 * (2 * n - n / 5)) << "rank " << r;
  }
  EXPECT_EQ(sent, 4 * n);
  EXPECT_EQ(received, 4 * n);
}

/// Sends no more than the model's bytes, up to one value per rank from rounding, for any tree.
TEST(flexreduce, sends_no_more_than_the_model_over_the_links_of_the_root) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 60; ++i) {
    const spar::tree topology = random_tree(random, 2 + random() % 22, 1 + static_cast<int>(random() % 4));
    const auto p = static_cast<std::size_t>(topology.ranks());
    const std::size_t n = 100 * p + random() % 1000;
    const flex_plan plan(topology, n);
    auto x = some_values<float>(topology.ranks(), n);
    std::vector<std::vector<std::uint64_t>> bytes(p, std::vector<std::uint64_t>(p));
    run_sim(topology.ranks(), counted{&plan, &x, &bytes});
    const auto& children = topology.nodes()[0].children;
    const auto degree = static_cast<double>(children.size());
    for (const std::size_t c : children) {
      const auto leaves = topology.leaves_of(topology.nodes()[c]);
      const auto below = [&](std::size_t r) {
        return std::find(leaves.begin(), leaves.end(), static_cast<rank_t>(r)) != leaves.end();
      };
      std::uint64_t up = 0, down = 0;
      for (std::size_t a = 0; a < p; ++a) {
        for (std::size_t b = 0; b < p; ++b) {
          if (below(a) && !below(b)) up += bytes[a][b];
          if (below(b) && !below(a)) down += bytes[a][b];
        }
      }
      const double model =
          2 * 4 * (static_cast<double>(n) * (degree - 1) / degree + static_cast<double>(leaves.size()));
      EXPECT_LE(static_cast<double>(up), model) << topology.picture();
      EXPECT_LE(static_cast<double>(down), model) << topology.picture();
    }
  }
}

TEST(flexreduce, a_plan_for_other_ranks_or_values_is_refused_before_anything_is_sent) {
  const flex_plan plan(hosts({2, 1}), 10);
  spar::thread_group group{2};
  group.run([&](spar::threads& inner) {
    spar::counting<spar::threads> net(inner);
    std::vector<float> x(10), y(9);
    try {
      spar::allreduce(net, std::span(x), spar::flexreduce(plan));
      ADD_FAILURE() << "no error";
    } catch (const spar::invalid_argument& e) {
      EXPECT_EQ(std::string(e.what()), "a plan is for 3 ranks, but the number of ranks is 2");
    }
    const flex_plan two(spar::tree::flat(2), 10);
    try {
      spar::allreduce(net, std::span(y), spar::flexreduce(two));
      ADD_FAILURE() << "no error";
    } catch (const spar::invalid_argument& e) {
      EXPECT_EQ(std::string(e.what()), "a plan is for 10 values, but the dimension is 9");
    }
    EXPECT_EQ(net.sent().messages, 0U);
    spar::allreduce(net, std::span(x), spar::flexreduce(two)); // the communicator still works
  });
}

TEST(flexreduce, plans_of_different_trees_are_found_out_on_every_rank) {
  const flex_plan one(hosts({2, 1}), 10), other(hosts({1, 2}), 10);
  spar::thread_group group{3};
  group.run([&](spar::threads& net) {
    std::vector<float> x(10);
    std::string text;
    try {
      spar::allreduce(net, std::span(x), spar::flexreduce(net.rank() == 2 ? other : one));
      spar::allreduce(net, std::span(x), spar::flexreduce(net.rank() == 2 ? other : one));
    } catch (const spar::mismatch& e) {
      text = e.what();
    } catch (const spar::peer_failed& e) {
      text = e.what();
    }
    EXPECT_NE(text.find("ranks disagree on the algorithm"), std::string::npos) << text;
  });
}

/// Each rank waits for a rank with the same tree: no rank waits for the messages of the ranks with the other tree.
struct by_a_tree_and_the_other_way_round {
  template <class Net>
  spar::task<void> operator()(Net& net) const& {
    spar::tree_node reversed;
    for (rank_t r = 4; r-- > 0;) reversed.children.push_back({.rank = r});
    const flex_plan plan(net.rank() < 2 ? spar::tree::flat(4) : spar::tree(reversed), 10);
    const auto reduce = spar::flexreduce(plan);
    std::vector<float> x(10, 1.0F);
    std::string text;
    try {
      co_await spar::start_allreduce(net, std::span(x), reduce);
    } catch (const spar::mismatch& e) {
      text = e.what();
    } catch (const spar::peer_failed& e) {
      text = e.what();
    }
    EXPECT_NE(text.find("ranks disagree on the algorithm"), std::string::npos) << text;
  }
};

TEST(flexreduce, plans_whose_ranks_do_not_hear_each_other_are_found_out) {
  const by_a_tree_and_the_other_way_round program;
  for (const mode where : all_modes) run(where, 4, program);
}

} // namespace
} // namespace spar_test
