// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Trees: their levels and leaves, their picture, and invalid trees.
#include <spar/topology/hosts.hpp>
#include <spar/topology/tree.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

namespace {

using spar::tree;
using spar::tree_node;
using ranks = std::vector<spar::rank_t>;

tree_node branch(std::vector<tree_node> children) { return {.children = std::move(children)}; }
tree_node leaf(spar::rank_t rank) { return {.rank = rank}; }

/// Two hosts, one of which contains a switch, and a rank beside them.
tree_node uneven() {
  return branch({branch({leaf(4), branch({leaf(0), leaf(2)})}), leaf(1), branch({leaf(5), leaf(3)})});
}

ranks leaves_of(const tree& t, std::size_t node) {
  const auto leaves = t.leaves_of(t.nodes()[node]);
  return {leaves.begin(), leaves.end()};
}

TEST(tree, levels_are_counted_from_the_deepest_branch) {
  const tree t(uneven());
  EXPECT_EQ(t.ranks(), 6);
  ASSERT_EQ(t.levels(), 3U);
  ASSERT_EQ(t.branches(0).size(), 1U);
  EXPECT_EQ(leaves_of(t, t.branches(0)[0]), (ranks{0, 2}));
  ASSERT_EQ(t.branches(1).size(), 2U);
  EXPECT_EQ(leaves_of(t, t.branches(1)[0]), (ranks{4, 0, 2}));
  EXPECT_EQ(leaves_of(t, t.branches(1)[1]), (ranks{5, 3}));
  ASSERT_EQ(t.branches(2), std::vector<std::size_t>{0});
  EXPECT_EQ(leaves_of(t, 0), (ranks{4, 0, 2, 1, 5, 3}));
}

TEST(tree, a_flat_one_has_one_level_and_a_single_rank_none) {
  EXPECT_EQ(tree::flat(5).levels(), 1U);
  EXPECT_EQ(tree::flat(5).ranks(), 5);
  const tree alone(leaf(0));
  EXPECT_EQ(alone.levels(), 0U);
  EXPECT_EQ(alone.ranks(), 1);
}

TEST(tree, of_hosts_stands_in_the_order_of_their_first_ranks) {
  const ranks host_of{7, 3, 3, 7, 7};
  const tree t = spar::tree_of_hosts(host_of, {1e10, 0}, {1e9, 1e-5});
  ASSERT_EQ(t.nodes()[0].children.size(), 2U);
  EXPECT_EQ(leaves_of(t, t.nodes()[0].children[0]), (ranks{0, 3, 4}));
  EXPECT_EQ(leaves_of(t, t.nodes()[0].children[1]), (ranks{1, 2}));
  EXPECT_EQ(t.nodes()[1].up.bandwidth, 1e9);
  EXPECT_EQ(t.nodes()[2].up.bandwidth, 1e10);
  EXPECT_EQ(spar::tree_of_hosts(ranks{0, 0, 0}, {1e10, 0}), tree::flat(3, {1e10, 0})) << "a single host";
}

TEST(tree, is_symmetric_where_all_branches_of_a_level_have_as_many_children) {
  EXPECT_TRUE(tree::flat(5).is_symmetric());
  EXPECT_TRUE(tree(leaf(0)).is_symmetric());
  EXPECT_TRUE(tree(branch({branch({leaf(0), leaf(1)}), branch({leaf(3), leaf(2)})})).is_symmetric());
  EXPECT_FALSE(tree(branch({branch({leaf(0), leaf(1)}), branch({leaf(2)})})).is_symmetric());
  EXPECT_FALSE(tree(branch({leaf(0), branch({leaf(1)})})).is_symmetric());
}

TEST(tree, is_comparable) {
  EXPECT_EQ(tree(uneven()), tree(uneven()));
  EXPECT_NE(tree(uneven()), tree::flat(6));
  EXPECT_NE(tree::flat(2, {.bandwidth = 1}), tree::flat(2, {.bandwidth = 2}));
}

TEST(tree, has_a_picture) {
  const tree t(tree_node{.links = {.bandwidth = 1e8, .latency = 1e-5},
                         .children = {leaf(1), {.links = {.bandwidth = 2e9, .latency = 0}, .children = {leaf(0)}}}});
  EXPECT_EQ(t.picture(), "root, 2 children\n"
                         "  rank 1, 1e+08 B/s, 1e-05 s\n"
                         "  branch, 1 children, 1e+08 B/s, 1e-05 s\n"
                         "    rank 0, 2e+09 B/s, 0 s\n");
}

std::string error_of(const tree_node& root) {
  try {
    const tree t(root);
    return "no error";
  } catch (const spar::invalid_argument& e) {
    return e.what();
  }
}

TEST(tree, bad_ones_are_refused_with_the_place) {
  EXPECT_EQ(error_of(branch({})), "root of the tree has neither a rank nor children; expected one of the two");
  EXPECT_EQ(error_of(branch({leaf(0), branch({leaf(1), branch({})})})),
            "root.children[1].children[1] of the tree has neither a rank nor children; expected one of the two");
  EXPECT_EQ(error_of(branch({{.rank = 0, .children = {leaf(1)}}})),
            "root.children[0] of the tree is rank 0 and has children; expected either a rank or children");
  EXPECT_EQ(error_of(branch({leaf(0), leaf(1), leaf(0)})),
            "a tree has rank 0 twice; expected each rank from 0 to 2 once");
  EXPECT_EQ(error_of(branch({leaf(0), leaf(2)})), "a tree with 2 leaves has rank 2; expected the ranks from 0 to 1");
  EXPECT_EQ(error_of(branch({leaf(-7)})),
            "root.children[0] of the tree has the invalid rank -7; expected a rank of at least 0, or -1 for a branch");
  for (const double bandwidth : {0.0, -1.0}) {
    const tree_node slow{.links = {.bandwidth = bandwidth}, .children = {leaf(0)}};
    EXPECT_NE(error_of(branch({slow})).find("root.children[0] of the tree has links whose bandwidth is"),
              std::string::npos);
  }
  for (const double bandwidth : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_NE(error_of({.links = {.bandwidth = bandwidth}, .children = {leaf(0)}}), "no error");
  }
  EXPECT_EQ(error_of({.links = {.latency = -1}, .children = {leaf(0)}}),
            "root of the tree has links whose latency is -1; expected a finite, non-negative number of seconds");
}

} // namespace
