// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Trees in JSON: accepted and rejected input, and the place that an error names.
#include <spar/topology/tree_json.hpp>

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <utility>

namespace {

TEST(tree_json, is_the_tree_that_code_composes) {
  const spar::tree parsed = spar::parse_tree(R"({"bandwidth": 1.25e8, "latency": 5e-5, "children": [
      {"rank": 2},
      {"bandwidth": 1e10, "latency": 0, "children": [{"rank": 0}, {"rank": 1}]}]})");
  const spar::tree composed(
      spar::tree_node{.links = {1.25e8, 5e-5},
                      .children = {{.rank = 2}, {.links = {1e10, 0}, .children = {{.rank = 0}, {.rank = 1}}}}});
  EXPECT_EQ(parsed, composed);
  EXPECT_EQ(spar::parse_tree(R"({"children": [{"rank": 0}, {"rank": 1}]})"), spar::tree::flat(2));
  const spar::tree one_slow =
      spar::parse_tree(R"({"latency": 5e-5, "children": [{"rank": 0, "link": {"bandwidth": 1e7}}, {"rank": 1}]})");
  EXPECT_EQ(one_slow.nodes()[1].up, (spar::tree_link{1e7, 5e-5})) << "a link must inherit unset properties from above";
  EXPECT_EQ(one_slow.nodes()[2].up, (spar::tree_link{1e9, 5e-5}));
  EXPECT_EQ(spar::parse_tree(R"({"rank": 0})").ranks(), 1);
}

TEST(tree_json, bad_ones_are_refused_with_the_place) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "malformed JSON tree: "},
      {"{", "malformed JSON tree: "},
      {R"({"bandwidth": 1e400, "children": [{"rank": 0}]})", "malformed JSON tree: "},
      {"[]", "root of the tree is a JSON array; expected a JSON object"},
      {R"({"rank": -1})", "root.rank of the tree is -1; expected an integer in [0, 2147483647]"},
      {R"({"rank": 0.5})", "root.rank of the tree is 0.5; expected an integer in [0, 2147483647]"},
      {R"({"rank": 4294967296})", "root.rank of the tree is 4294967296; expected an integer in [0, 2147483647]"},
      {R"({"rank": 0, "latency": 1})",
       "root of the tree has the rank 0 and also a bandwidth or latency; expected a rank in a leaf, and a bandwidth or "
       "latency in a branch or in a leaf's link"},
      {R"({"children": {}})", "root.children of the tree is a JSON object; expected a JSON array"},
      {R"({"children": [{"rank": 0}, 1]})", "root.children[1] of the tree is a JSON number; expected a JSON object"},
      {R"({"children": [{"rank": 0}, {"ranks": 1}]})",
       "root.children[1] of the tree has the unknown key 'ranks'; expected rank or "},
      {R"({"children": [{"children": []}]})",
       "root.children[0] of the tree has neither a rank nor children; expected one of the two"},
      {R"({"bandwidth": "fast", "children": [{"rank": 0}]})",
       "root.bandwidth of the tree must be a number, not \"fast\""},
      {R"({"bandwidth": 0, "children": [{"rank": 0}]})", "root of the tree has links whose bandwidth is 0; expected"},
      {R"({"children": [{"rank": 0}, {"rank": 0}]})", "a tree has rank 0 twice; expected each rank from 0 to 1 once"},
      {R"({"children": [{"rank": 0}, {"rank": 1, "rank": 2}]})", "a tree has an object with the key 'rank' twice"},
      {R"({"link": {}, "rank": 0})", "root of the tree has a link to a parent"},
      {R"({"children": [{"rank": 0, "link": 3}]})",
       "root.children[0].link of the tree is a JSON number; expected a JSON object"},
      {R"({"children": [{"rank": 0, "link": {"speed": 3}}]})",
       "root.children[0].link of the tree has the unknown key 'speed'"},
      {R"({"children": [{"rank": 0, "link": {"bandwidth": 0}}]})",
       "root.children[0] of the tree has a link whose bandwidth is 0; expected"},
      {R"({"children": [{"rank": 0, "link": {"latency": -1}}]})",
       "root.children[0] of the tree has a link whose latency is -1; expected"},
  };
  for (const auto& [text, expected] : cases) {
    try {
      const spar::tree t = spar::parse_tree(text);
      ADD_FAILURE() << text << " was accepted";
    } catch (const spar::invalid_argument& e) {
      EXPECT_EQ(std::string(e.what()).find(expected), 0U) << text << ": " << e.what();
    }
  }
}

TEST(tree_json, one_without_end_is_refused) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += R"({"children": [)";
  try {
    const spar::tree t = spar::parse_tree(text + R"({"rank": 0})" + [] {
      std::string end;
      for (int i = 0; i < 100'000; ++i) end += "]}";
      return end;
    }());
    ADD_FAILURE() << "the tree was accepted";
  } catch (const spar::invalid_argument& e) {
    EXPECT_STREQ(e.what(), "a tree has values nested more than 1000 deep; expected at most 1000");
  }
}

TEST(tree_json, errors_show_only_the_start_of_a_long_value) {
  const std::string deep(900, '['), close(900, ']'), wide(1'000'000, 'x');
  for (const std::string& value : {deep + close, '"' + wide + '"'}) {
    for (const std::string key : {"rank", "bandwidth", "link", "children"}) {
      try {
        const spar::tree t = spar::parse_tree("{\"" + key + "\": " + value + "}");
        ADD_FAILURE() << key << " was accepted";
      } catch (const spar::invalid_argument& e) {
        EXPECT_LT(std::string(e.what()).size(), 300U) << key;
      }
    }
  }
}

TEST(tree_json, of_a_file) {
  const std::string path = testing::TempDir() + "spar_tree.json";
  std::ofstream(path) << R"({"children": [{"rank": 1}, {"rank": 0}]})";
  EXPECT_EQ(spar::read_tree(path).leaves()[0], 1);
  std::ofstream(path) << R"({"children": 3})";
  for (const auto& [file, says] :
       {std::pair(path, path + ": root.children of the tree is a JSON number; expected a JSON array"),
        std::pair(path + "x", "cannot read " + path + "x: No such file or directory"),
        std::pair(std::string("/"), std::string("cannot read /: Is a directory")),
        std::pair(std::string("/dev/zero"), std::string("/dev/zero has a zero byte; expected a text"))}) {
    try {
      const spar::tree t = spar::read_tree(file);
      ADD_FAILURE() << file << " was accepted";
    } catch (const spar::invalid_argument& e) {
      EXPECT_EQ(std::string(e.what()), says);
    }
  }
}

} // namespace
