// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Plans for uneven trees: the paper's example, and the properties of plans on random trees.
#include "support/extent.hpp"
#include "topology/random_tree.hpp"

#include <spar/model/tree_cost.hpp>
#include <spar/topology/flex_plan.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace spar_test {
namespace {

using spar::flex_plan;
using spar::index_range;
using spar::rank_t;
using spar::tree;

TEST(flex_plan, of_the_papers_figure_2) {
  const flex_plan plan(hosts({2, 3}), 12); // D and E, F to H in the paper
  const index_range expected[] = {{2, 5}, {7, 10}, {0, 2}, {5, 7}, {10, 12}};
  for (rank_t r = 0; r < 5; ++r) EXPECT_EQ(plan[r], expected[r]) << "rank " << r;
  EXPECT_EQ(plan.picture(), "level 0: [0, 6) 1 -> 0\n"
                            "level 0: [6, 12) 0 -> 1\n"
                            "level 0: [0, 4) 3 -> 4 -> 2\n"
                            "level 0: [4, 8) 4 -> 2 -> 3\n"
                            "level 0: [8, 12) 2 -> 3 -> 4\n"
                            "level 1: [0, 2) 0 -> 2\n"
                            "level 1: [2, 4) 2 -> 0\n"
                            "level 1: [4, 5) 3 -> 0\n"
                            "level 1: [5, 6) 0 -> 3\n"
                            "level 1: [6, 7) 1 -> 3\n"
                            "level 1: [7, 8) 3 -> 1\n"
                            "level 1: [8, 10) 4 -> 1\n"
                            "level 1: [10, 12) 1 -> 4\n");
}

TEST(flex_plan, of_a_flat_tree_is_the_ring) {
  const flex_plan plan(tree::flat(4), 10);
  EXPECT_EQ(plan.picture(), "level 0: [0, 2) 1 -> 2 -> 3 -> 0\n"
                            "level 0: [2, 5) 2 -> 3 -> 0 -> 1\n"
                            "level 0: [5, 7) 3 -> 0 -> 1 -> 2\n"
                            "level 0: [7, 10) 0 -> 1 -> 2 -> 3\n");
}

TEST(flex_plan, is_comparable_and_has_a_digest) {
  const flex_plan plan(hosts({2, 3}), 12);
  EXPECT_EQ(plan, flex_plan(hosts({2, 3}), 12));
  const auto counts = plan.counts(); // five calls on level 0 by five ranks, eight on level 1
  EXPECT_DOUBLE_EQ(counts.mean, 1.3);
  EXPECT_EQ(counts.most, 2U);
  for (const flex_plan& other : {flex_plan(hosts({3, 2}), 12), flex_plan(hosts({2, 3}), 13), flex_plan(hosts({5}), 12),
                                 flex_plan(tree::flat(5), 12)}) {
    EXPECT_NE(plan, other);
    EXPECT_NE(plan.digest(), other.digest());
  }
}

TEST(flex_plan, of_more_values_than_32_bits_count) {
  const std::uint64_t n = std::uint64_t{1} << 62;
  const flex_plan plan(hosts({2, 3, 4}), n);
  std::uint64_t together = 0;
  for (rank_t r = 0; r < plan.ranks(); ++r) together += plan[r].size();
  EXPECT_EQ(together, n);
}

/// For each index, the set of ranks whose values a rank has added, as bits.
using contents = std::vector<std::uint64_t>;

/// Executes a plan with sets of ranks for values; every expectation is one of the paper's goals.
void expect_exact(const flex_plan& plan) {
  const std::uint64_t n = plan.dimension();
  const auto ranks = static_cast<std::size_t>(plan.ranks());
  std::vector<contents> has(ranks);
  for (std::size_t r = 0; r < ranks; ++r) has[r].assign(n, std::uint64_t{1} << r);
  std::vector<index_range> held(ranks, {0, n});
  for (std::size_t level = 0; level < plan.levels(); ++level) {
    const std::vector<index_range> before = held;
    for (std::size_t r = 0; r < ranks; ++r) {
      if (!plan.parts(level, static_cast<rank_t>(r)).empty()) held[r] = {0, 0};
    }
    for (const auto& call : plan.calls(level)) {
      const auto chain = plan.chain(call);
      ASSERT_GT(call.range.size(), 0U);
      ASSERT_EQ(std::set<rank_t>(chain.begin(), chain.end()).size(), chain.size()) << "a rank is twice in a chain";
      const auto root = static_cast<std::size_t>(chain.back());
      auto& mine = held[root];
      if (mine.size() == 0) mine = {call.range.begin, call.range.begin};
      ASSERT_EQ(mine.end, call.range.begin) << "a rank's next range has a gap";
      mine.end = call.range.end;
      for (std::uint64_t i = call.range.begin; i < call.range.end; ++i) {
        std::uint64_t sum = 0;
        for (std::size_t place = 0; place < chain.size(); ++place) {
          const auto r = static_cast<std::size_t>(chain[place]);
          if (place + 1 == chain.size() && !call.root_holds) break;
          ASSERT_TRUE(before[r].begin <= i && i < before[r].end) << "a rank sends what it does not hold";
          ASSERT_EQ(sum & has[r][i], 0U) << "a value is added twice";
          sum |= has[r][i];
        }
        has[root][i] = sum;
      }
    }
  }
  std::vector<bool> owned_by_some(n);
  for (std::size_t r = 0; r < ranks; ++r) {
    const index_range owned = plan[static_cast<rank_t>(r)];
    EXPECT_EQ(owned.size(), held[r].size());
    EXPECT_TRUE(owned.size() == 0 || owned == held[r]) << "rank " << r;
    for (std::uint64_t i = held[r].begin; i < held[r].end; ++i) {
      ASSERT_FALSE(owned_by_some[i]) << "index " << i << " has two owners";
      owned_by_some[i] = true;
      ASSERT_EQ(has[r][i], ~std::uint64_t{0} >> (64 - ranks)) << "index " << i << " of rank " << r;
    }
  }
  EXPECT_EQ(std::count(owned_by_some.begin(), owned_by_some.end(), false), 0) << "some index has no owner";
}

const int trees = is_full() ? 3000 : is_shortened ? 300 : 1000;

TEST(flex_plan, is_exact_on_random_trees) {
  std::mt19937_64 random(1);
  for (int i = 0; i < trees; ++i) {
    const std::size_t leaves = 1 + random() % 64;
    const bool slow_links = random() % 2 == 0;
    const tree topology = random_tree(random, leaves, 1 + static_cast<int>(random() % 4), slow_links);
    const std::uint64_t sizes[] = {0, 1, leaves - 1, leaves, random() % 300, 64 * leaves + random() % 100};
    const std::uint64_t n = sizes[random() % 6];
    SCOPED_TRACE(testing::Message() << "tree " << i << ", n = " << n << '\n' << topology.picture());
    expect_exact(flex_plan(topology, n));
    expect_exact(flex_plan::hierarchical(topology, n));
    if (testing::Test::HasFailure()) return;
  }
}

TEST(flex_plan, hierarchical_reduces_to_masters_who_alone_go_on) {
  EXPECT_EQ(flex_plan::hierarchical(hosts({2, 3}), 12).picture(), "level 0: [0, 12) 1 -> 0\n"
                                                                  "level 0: [0, 12) 3 -> 4 -> 2\n"
                                                                  "level 1: [0, 6) 2 -> 0\n"
                                                                  "level 1: [6, 12) 0 -> 2\n");
  EXPECT_NE(flex_plan::hierarchical(hosts({2, 3}), 12).digest(), flex_plan(hosts({2, 3}), 12).digest());
  EXPECT_EQ(flex_plan::hierarchical(tree::flat(5), 12), flex_plan(tree::flat(5), 12))
      << "the root must not count as a host";
}

TEST(flex_plan, children_with_slow_links_come_first_in_chains_that_they_do_not_end) {
  spar::tree_node root{.links = {.bandwidth = 1e9}};
  for (rank_t r = 0; r < 4; ++r) root.children.push_back({.rank = r});
  root.children[2].link = {.bandwidth = 2.6e8}; // more than a quarter
  EXPECT_EQ(flex_plan(tree(root), 8), flex_plan(tree::flat(4), 8));
  root.children[2].link = {.bandwidth = 1e8};
  EXPECT_EQ(flex_plan(tree(root), 8).picture(), "level 0: [0, 2) 2 -> 1 -> 3 -> 0\n"
                                                "level 0: [2, 4) 2 -> 0 -> 3 -> 1\n"
                                                "level 0: [4, 6) 0 -> 1 -> 3 -> 2\n"
                                                "level 0: [6, 8) 2 -> 0 -> 1 -> 3\n");
}

std::vector<std::vector<flex_plan::call_spec>> calls_of(const flex_plan& plan) {
  std::vector<std::vector<flex_plan::call_spec>> levels(plan.levels());
  for (std::size_t l = 0; l < levels.size(); ++l) {
    for (const auto& c : plan.calls(l)) {
      const auto chain = plan.chain(c);
      levels[l].push_back({c.range, {chain.begin(), chain.end()}});
    }
  }
  return levels;
}

TEST(flex_plan, of_its_calls_is_the_same_plan) {
  std::mt19937_64 random(4);
  for (int i = 0; i < 500; ++i) {
    const tree topology = random_tree(random, 1 + random() % 40, 1 + static_cast<int>(random() % 4));
    const flex_plan plan(topology, random() % 1000);
    const flex_plan again = flex_plan::of_calls(plan.dimension(), plan.ranks(), calls_of(plan));
    ASSERT_EQ(again, plan) << topology.picture();
    ASSERT_EQ(again.digest(), plan.digest());
  }
}

/// Whatever changes in a plan's calls, the plan is rejected or exact.
TEST(flex_plan, of_changed_calls_is_refused_or_exact) {
  std::mt19937_64 random(6);
  int accepted = 0;
  for (int i = 0; i < 4000; ++i) {
    const tree topology = random_tree(random, 2 + random() % 6, 1 + static_cast<int>(random() % 3));
    const std::uint64_t n = 5 + random() % 40;
    const flex_plan plan = random() % 2 == 0 ? flex_plan(topology, n) : flex_plan::hierarchical(topology, n);
    auto levels = calls_of(plan);
    auto& level = levels[random() % levels.size()];
    const std::size_t c = random() % level.size(), other = random() % level.size();
    auto& chain = level[c].chain;
    const std::size_t place = random() % chain.size();
    const auto some_rank = static_cast<rank_t>(random() % static_cast<std::uint64_t>(plan.ranks()));
    switch (random() % 10) {
    case 0:
      level[c].range.begin += 1;
      break;
    case 1:
      level[c].range.end -= 1;
      break;
    case 2:
      std::swap(chain[place], chain[random() % chain.size()]);
      break;
    case 3:
      chain[place] = some_rank;
      break;
    case 4:
      level.erase(level.begin() + static_cast<std::ptrdiff_t>(c));
      break;
    case 5:
      level.push_back(level[c]);
      break;
    case 6:
      std::swap(level[c], level[other]);
      break;
    case 7:
      chain.insert(chain.begin() + static_cast<std::ptrdiff_t>(place), some_rank);
      break;
    case 8:
      levels.push_back({level[c]});
      break;
    default:
      chain.erase(chain.begin() + static_cast<std::ptrdiff_t>(place));
    }
    try {
      const flex_plan changed = flex_plan::of_calls(plan.dimension(), plan.ranks(), levels);
      ++accepted;
      expect_exact(changed);
      if (testing::Test::HasFailure()) FAIL() << "change " << i << " of\n" << plan.picture();
    } catch (const spar::invalid_argument&) {
    }
  }
  EXPECT_GT(accepted, 300); // for example other orders of chains
  EXPECT_LT(accepted, 2500);
}

TEST(flex_plan, of_calls_that_lose_or_double_values_is_refused) {
  using calls = std::vector<std::vector<flex_plan::call_spec>>;
  const calls good{{{{0, 6}, {1, 0}}, {{6, 12}, {0, 1}}}};
  const auto refusal = [](const calls& levels, std::uint64_t n = 12, rank_t ranks = 2) -> std::string {
    try {
      (void)flex_plan::of_calls(n, ranks, levels);
      return "accepted";
    } catch (const spar::invalid_argument& e) {
      return e.what();
    }
  };
  const auto with = [&](auto change) {
    calls changed = good;
    change(changed[0]);
    return refusal(changed);
  };
  EXPECT_EQ(refusal(good), "accepted");
  EXPECT_EQ(refusal(good, 12, 0), "a plan is for 0 ranks; expected at least 1");
  EXPECT_EQ(with([](auto& l) { l[1].range.end = 13; }),
            "call 1 of a plan has the range [6, 13); expected a non-empty part of [0, 12)");
  EXPECT_EQ(with([](auto& l) { l[1].range = {7, 7}; }),
            "call 1 of a plan has the range [7, 7); expected a non-empty part of [0, 12)");
  EXPECT_EQ(with([](auto& l) { l[0].chain = {2, 0}; }),
            "call 0 of a plan has rank 2 in its chain; expected ranks from 0 to 1");
  EXPECT_EQ(with([](auto& l) { l[0].chain = {0, 0}; }),
            "call 0 of a plan has rank 0 twice in its chain; expected each rank at most once");
  EXPECT_EQ(with([](auto& l) { l[0].chain = {}; }), "call 0 of a plan has no ranks in its chain; expected at least 1");
  EXPECT_EQ(with([](auto& l) { l[0].chain = {0}; }),
            "call 1 of a plan (call 1 of its level) begins at value 6, but rank 1 needs a call that begins at "
            "value 0; each value must be in exactly one of the rank's calls on the level");
  EXPECT_EQ(with([](auto& l) { l[1].range.begin = 5; }),
            "call 1 of a plan (call 1 of its level) begins at value 5, but rank 0 needs a call that begins at "
            "value 6; each value must be in exactly one of the rank's calls on the level");
  EXPECT_EQ(with([](auto& l) { l.pop_back(); }),
            "on level 0 of a plan, the calls of rank 0 end at 6, but the values that the rank holds end at 12; each "
            "value must be in exactly one of the rank's calls on the level");
  EXPECT_EQ(refusal({{{{0, 12}, {0}}}}), "each of the 12 values of a plan must have exactly one owner, but owned "
                                         "ranges overlap or leave a gap at value 12");
  EXPECT_EQ(refusal({}, 12, 1), "accepted");
  calls alone = good;
  alone.push_back({{{6, 12}, {0}}});
  EXPECT_EQ(refusal(alone),
            "call 2 of a plan has the range [6, 12) and only rank 0 in its chain, but rank 0 holds the values [0, 6); "
            "expected a rank that holds all values of the range");
}

/// Equation 12: the next range of a learner meets ceil(the learner's portion / the smallest portion) boundaries of each
/// child.
TEST(flex_plan, has_no_more_calls_than_equation_12) {
  std::mt19937_64 random(2);
  for (int i = 0; i < trees; ++i) {
    const std::size_t leaves = 1 + random() % 64;
    const tree topology = random_tree(random, leaves, 1 + static_cast<int>(random() % 4));
    const flex_plan plan(topology, 64 * leaves + random() % 100000);
    std::vector<double> portion(leaves, 1.0);
    const std::vector<std::size_t> most = spar::most_calls_of_levels(topology);
    ASSERT_EQ(most.size(), plan.levels());
    for (std::size_t level = 0; level < plan.levels(); ++level) {
      double largest_bound = 0;
      std::vector<std::size_t> calls(leaves);
      for (const auto& call : plan.calls(level)) ++calls[static_cast<std::size_t>(plan.chain(call).back())];
      for (const std::size_t b : topology.branches(level)) {
        const auto& branch = topology.nodes()[b];
        for (const rank_t v : topology.leaves_of(branch)) {
          const double next = portion[static_cast<std::size_t>(v)] / static_cast<double>(branch.children.size());
          double bound = 1;
          for (const std::size_t m : branch.children) {
            double smallest = 1;
            for (const rank_t u : topology.leaves_of(topology.nodes()[m])) {
              smallest = std::min(smallest, portion[static_cast<std::size_t>(u)]);
            }
            bound += std::ceil(next / smallest - 1e-9);
          }
          EXPECT_LE(static_cast<double>(calls[static_cast<std::size_t>(v)]), bound)
              << "tree " << i << ", level " << level << ", rank " << v << '\n'
              << topology.picture();
          largest_bound = std::max(largest_bound, bound);
        }
        for (const rank_t v : topology.leaves_of(branch)) {
          portion[static_cast<std::size_t>(v)] /= static_cast<double>(branch.children.size());
        }
      }
      EXPECT_EQ(static_cast<double>(most[level]), largest_bound) << topology.picture();
    }
  }
}

} // namespace
} // namespace spar_test
