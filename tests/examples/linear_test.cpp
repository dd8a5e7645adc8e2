// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The parts of examples/linear: the reader of LIBSVM files.
#include "../../examples/linear/libsvm.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace spar_test {
namespace {

using linear::libsvm_parser, linear::most_features, linear::samples;

/// A sample as a text, for comparison.
std::string text_of(const linear::sample& one) {
  std::ostringstream out;
  out << one.label;
  for (std::size_t k = 0; k < one.indices.size(); ++k) out << ' ' << one.indices[k] + 1 << ':' << one.values[k];
  return out.str();
}

std::vector<std::string> texts_of(const samples& all) {
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < all.size(); ++i) texts.push_back(text_of(all[i]));
  return texts;
}

samples parse(const std::string& text, std::size_t shard = 0, std::size_t shards = 1) {
  return libsvm_parser(text, "file", most_features).parse(shard, shards);
}

/// A random file, and the samples that a reader by streams finds in it.
std::pair<std::string, std::vector<std::string>> random_file(std::uint32_t seed) {
  std::mt19937_64 random(seed);
  const auto one_of = [&](std::vector<std::string> words) { return words[random() % words.size()]; };
  std::string text;
  std::vector<std::string> expected;
  for (std::uint64_t line = random() % 40; line > 0; --line) {
    const std::uint64_t kind = random() % 8;
    const std::string end = line == 1 ? one_of({"", "\n"}) : one_of({"\n", "\r\n"});
    if (kind == 0) text += one_of({"", "  ", "\t", "# 1 1:1", "  # all a comment"}) + end;
    if (kind == 0) continue;
    std::string fields = one_of({"+1", "-1", "1", "0", "2.5"}), words = fields;
    if (kind == 1) words += " qid:7";
    std::uint64_t index = 0;
    for (std::uint64_t n = random() % 6; n > 0; --n) {
      index += 1 + random() % (random() % 4 == 0 ? 1000000 : 3);
      const std::string feature = std::to_string(index) + ":" + one_of({"1", "-0.5", "1e-3", "+2", "1e-50", ".25"});
      words += one_of({" ", "  ", "\t"}) + feature;
      fields += " " + feature;
    }
    text += one_of({"", " "}) + words + one_of({"", " ", "# c", " # qid:x 0:0"}) + end;
    std::istringstream in(fields);
    float label = 0, value = 0;
    char colon = 0;
    in >> label;
    std::ostringstream out;
    out << label;
    for (std::string feature; in >> feature;) {
      std::istringstream parts(feature);
      parts >> index >> colon;
      value = static_cast<float>(std::stod(feature.substr(feature.find(':') + 1)));
      out << ' ' << index << ':' << value;
    }
    expected.push_back(out.str());
  }
  return {text, expected};
}

TEST(linear, shards_of_random_files_have_the_samples_of_a_simple_reader) {
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    const auto [text, expected] = random_file(seed);
    for (std::size_t shards = 1; shards < 10; ++shards) {
      std::vector<std::string> found;
      for (std::size_t shard = 0; shard < shards; ++shard) {
        const std::vector<std::string> some = texts_of(parse(text, shard, shards));
        found.insert(found.end(), some.begin(), some.end());
      }
      ASSERT_EQ(found, expected) << "seed " << seed << ", " << shards << " shards:\n" << text;
    }
  }
}

TEST(linear, a_malformed_line_is_named_with_its_column_and_value) {
  const std::vector<std::pair<std::string, std::string>> faults = {
      {"1 0:1", "3: the index is 0; the first feature has the index 1"},
      {"1 2:1 2:1", "7: the index 2 is not above the index before, 2"},
      {"1 2:1 1:1", "7: the index 1 is not above the index before, 2"},
      {"1 101:1", "3: the index 101 is above the dimension 100"},
      {"1 99999999999999999999:1", "3: the index 99999999999999999999 is out of range"},
      {"1 -1:1", "3: the index must be a whole number, not '-1'"},
      {"1 +1:1", "3: the index must be a whole number, not '+1'"},
      {"1 :1", "3: the index must be a whole number, not ''"},
      {"1 1.5:1", "3: the index must be a whole number, not '1.5'"},
      {"1 1: 2:1", "5: the value must be a finite number, not ''"},
      {"1 1:x", "5: the value must be a finite number, not 'x'"},
      {"1 1:1x", "5: the value must be a finite number, not '1x'"},
      {"1 1:1:1", "5: the value must be a finite number, not '1:1'"},
      {"1 1:nan", "5: the value must be a finite number, not 'nan'"},
      {"1 1:-inf", "5: the value must be a finite number, not '-inf'"},
      {"1 1:+-1", "5: the value must be a finite number, not '+-1'"},
      {"1 1:1e39", "5: the value 1e39 is out of range"},
      {"1 1:1e999", "5: the value 1e999 is out of range"},
      {"1  word", "4: expected INDEX:VALUE, got 'word'"},
      {"1 1:1 qid:3", "7: the index must be a whole number, not 'qid'"},
      {"1 qid:x 1:1", "7: the qid must be a whole number, not 'x'"},
      {"\t1:1", "2: the label is missing before '1:1'"},
      {"word 1:1", "1: the label must be a finite number, not 'word'"},
      {"1e39 1:1", "1: the label 1e39 is out of range"},
  };
  for (const auto& [line, says] : faults) {
    const std::string text = "1 1:1\n# 2\r\n" + line + "\r\n-1 5:1\n";
    for (std::size_t shards = 1; shards < 10; ++shards) {
      std::string why;
      for (std::size_t shard = 0; shard < shards; ++shard) {
        try {
          (void)libsvm_parser(text, "some file", 100).parse(shard, shards);
        } catch (const std::runtime_error& error) {
          why += error.what();
        }
      }
      EXPECT_EQ(why, "some file:3:" + says) << shards << " shards";
    }
  }
}

TEST(linear, files) {
  const std::string path = testing::TempDir() + "linear_test.libsvm";
  std::ofstream(path) << "+1 1:0.5 4294967296:2\n-1\n";
  EXPECT_EQ(texts_of(linear::read_libsvm(path, most_features, 0, 1)),
            (std::vector<std::string>{text_of({1, std::vector<std::uint32_t>{0, 4294967295U}, std::vector{0.5F, 2.0F}}),
                                      "-1"}));
  std::ofstream(path).flush(); // empties the file
  EXPECT_EQ(linear::read_libsvm(path, most_features, 0, 2).size(), 0U);
  std::remove(path.c_str());
  EXPECT_THROW((void)linear::read_libsvm(path, most_features, 0, 1), std::runtime_error);
  EXPECT_THROW((void)linear::read_libsvm("/dev/zero", most_features, 0, 1), std::runtime_error);
  EXPECT_THROW((void)linear::read_libsvm("/", most_features, 0, 1), std::runtime_error);
}

} // namespace
} // namespace spar_test
