// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Plans in JSON: written and read again, and rejected input.
#include "topology/random_tree.hpp"

#include <spar/topology/flex_plan_json.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <random>
#include <string>
#include <utility>

namespace spar_test {
namespace {

using spar::flex_plan;

TEST(plan_json, there_and_back_is_the_same_plan) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 200; ++i) {
    const spar::tree topology = random_tree(random, 1 + random() % 20, 1 + static_cast<int>(random() % 4));
    const flex_plan plan(topology, random() % 1000);
    ASSERT_EQ(spar::parse_plan(spar::to_json(plan)), plan) << spar::to_json(plan);
  }
  const flex_plan masters = flex_plan::hierarchical(hosts({2, 3}), 12);
  EXPECT_EQ(spar::parse_plan(spar::to_json(masters)), masters);
}

TEST(plan_json, bad_ones_are_refused) {
  const std::string good = spar::to_json(flex_plan(spar::tree::flat(2), 12));
  EXPECT_EQ(spar::parse_plan(good).dimension(), 12U);
  const auto with = [&](const std::string& what, const std::string& instead) {
    std::string text = good;
    const std::size_t at = text.find(what);
    EXPECT_NE(at, std::string::npos) << what;
    return text.replace(at, what.size(), instead);
  };
  const std::pair<std::string, const char*> cases[] = {
      {"", "malformed plan: "},
      {"[]", "malformed plan: "},
      {with("\"n\": 12", "\"m\": 12"), "malformed plan: "},
      {with("\"n\": 12", "\"n\": -12"), "a plan has -12 where a non-negative integer is expected"},
      {with("\"n\": 12", "\"n\": 11"), "call 1 of a plan has the range [6, 12); expected a non-empty part of [0, 11)"},
      {with("\"n\": 12", "\"n\": 13"),
       "on level 0 of a plan, the calls of rank 0 end at 12, but the values that the rank holds end at 13"},
      {with("\"ranks\": 2", "\"ranks\": 4294967297"), "a plan has 2 ranges; expected one for each of 4294967297 ranks"},
      {with("    0,\n    1\n", "    0,\n    4294967297\n"),
       "a plan has 4294967297 where a rank is expected, an integer from 0 to 2147483647"},
      {with("\"ranks\": 2", "\"ranks\": 0.5"), "a plan has 0.5 where a non-negative integer is expected"},
      {with("\"participants\": [", "\"participants\": [[],"),
       "a plan has subranges for 1 levels, but participants for 2 levels"},
      {with("\"ranges\": [", "\"ranges\": [[0,0],"), "a plan has 3 ranges; expected one for each of 2 ranks"},
      {with("   0,\n   6\n", "   0,\n   5\n"),
       "ranges[0] of a plan is [0,5], but the calls of the plan make rank 0 the owner of [0,6]"},
      {with("\"n\": 12", "\"n\": 12, \"n\": 12"), "a plan has an object with the key 'n' twice"},
  };
  for (const auto& [text, expected] : cases) {
    try {
      (void)spar::parse_plan(text);
      ADD_FAILURE() << text << " is accepted";
    } catch (const spar::invalid_argument& e) {
      EXPECT_EQ(std::string(e.what()).find(expected), 0U) << text << ": " << e.what();
    }
  }
}

} // namespace
} // namespace spar_test
