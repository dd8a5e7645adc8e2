// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The parts of examples/linear: the reader of LIBSVM files, the data sets, SGD and coordinate descent on threads.
#include "../../examples/linear/exchanges.hpp"
#include "../../examples/linear/libsvm.hpp"
#include "../../examples/linear/scd.hpp"
#include "../../examples/linear/sgd.hpp"
#include "../../examples/linear/synthetic.hpp"

#include <spar/spar.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <random>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <sys/stat.h>

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

TEST(linear, a_third_label_is_named_with_its_line) {
  const std::array labels{-1.0F, 1.0F};
  const libsvm_parser parser("+1 1:1\n-1\n\n 0.5 2:1\n", "file", most_features);
  EXPECT_EQ(parser.parse(0, 2, labels).size(), 2U);
  try {
    (void)parser.parse(1, 2, labels);
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "file:4:2: the label 0.5 is a third one; expected two labels");
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
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0); // without a writer
  for (const std::string& other : {std::string("/dev/zero"), std::string("/"), path}) {
    try {
      (void)linear::read_libsvm(other, most_features, 0, 1);
      ADD_FAILURE() << other;
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(error.what(), other + " cannot be read: not a regular file");
    }
  }
  std::remove(path.c_str());
}

const linear::shape small{600, 500, 12};

TEST(linear, a_made_set_is_the_same_for_any_number_of_ranks) {
  const linear::synthetic set(small, 3);
  const samples whole = set.part(0, 1);
  ASSERT_EQ(whole.size(), small.samples);
  std::vector<std::string> parts;
  for (std::size_t r = 0; r < 7; ++r) {
    const std::vector<std::string> some = texts_of(set.part(r, 7));
    parts.insert(parts.end(), some.begin(), some.end());
  }
  EXPECT_EQ(parts, texts_of(whole));
}

TEST(linear, the_features_of_a_made_set_follow_a_power_law) {
  const linear::shape of{4000, 100000, 30};
  const samples all = linear::synthetic(of, 4).part(0, 1);
  std::vector<std::size_t> counts(of.features);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const linear::sample one = all[i];
    ASSERT_EQ(one.indices.size(), of.nonzeros);
    ASSERT_TRUE(std::is_sorted(one.indices.begin(), one.indices.end(), std::less_equal<>()));
    ASSERT_LT(one.indices.back(), of.features);
    ASSERT_NEAR(std::inner_product(one.values.begin(), one.values.end(), one.values.begin(), 0.0), 1, 1e-5);
    for (const std::uint32_t j : one.indices) ++counts[j];
  }
  std::sort(counts.rbegin(), counts.rend());
  // The places 20 to 200 and 200 to 2000 of the popularity have the same share of the draws.
  const auto sum = [&](std::ptrdiff_t from, std::ptrdiff_t to) {
    return std::accumulate(counts.begin() + from, counts.begin() + to, 0.0);
  };
  EXPECT_NEAR(sum(20, 200) / sum(200, 2000), 1, 0.1);
}

TEST(linear, the_slope_is_the_derivative_of_the_loss) {
  for (const auto kind : {linear::loss::logistic, linear::loss::hinge}) {
    for (const float label : {-1.0F, 1.0F}) {
      for (const double z : {-40.0, -2.5, -0.3, 0.0, 0.7, 3.1, 40.0}) {
        const double h = 1e-6, rise = linear::loss_of(kind, label, z + h) - linear::loss_of(kind, label, z - h);
        EXPECT_NEAR(linear::slope_of(kind, label, z), rise / (2 * h), 1e-6) << label << ' ' << z;
      }
    }
  }
}

/// The same sum as sparse_sum, of whole vectors.
struct dense_sum {
  spar::threads& net;

  linear::durations operator()(linear::gradient& step, std::span<float> weights) {
    spar::allreduce(net, step.dense, spar::ring{});
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= std::exchange(step.dense[i], 0.0F);
    std::fill(step.touched.begin(), step.touched.end(), 0);
    return {};
  }
};

/// What three epochs of SGD leave on rank 0: the sums of the losses of its batches, and the weights.
using trained = std::pair<std::vector<double>, std::vector<float>>;

template <class ExchangeOf>
trained train(linear::loss kind, spar::rank_t ranks, const ExchangeOf& exchange_of) {
  const linear::synthetic set(small, 5);
  trained result;
  spar::thread_group group(ranks);
  group.run([&](spar::threads& net) {
    const auto P = static_cast<std::size_t>(ranks);
    const samples mine = set.part(static_cast<std::size_t>(net.rank()), P);
    std::vector<float> weights(small.features);
    std::vector<double> losses;
    linear::gradient step(weights.size());
    auto exchange = exchange_of(net);
    const linear::sgd_options its{kind, 60 / P, 10, 7.3, P};
    for (int epoch = 0; epoch < 3; ++epoch) linear::sgd_pass(mine, its, weights, step, exchange, losses);
    EXPECT_EQ(std::count(step.dense.begin(), step.dense.end(), 0), static_cast<std::ptrdiff_t>(step.dense.size()));
    if (net.rank() == 0) result = {losses, weights};
  });
  return result;
}

TEST(linear, sgd_by_sparse_sums_has_the_losses_of_dense_sums) {
  for (const auto kind : {linear::loss::logistic, linear::loss::hinge}) {
    const auto sparse = [](spar::threads& net) {
      return linear::sparse_sum<spar::threads, decltype(spar::split_allgather{})>{net, {}, [] {}, {}, {}};
    };
    const auto dense = [](spar::threads& net) { return dense_sum{net}; };
    const trained alone = train(kind, 1, dense);
    for (const spar::rank_t ranks : {1, 3, 4}) {
      const trained by_sparse = train(kind, ranks, sparse), by_dense = train(kind, ranks, dense);
      ASSERT_EQ(by_sparse.first.size(), 30U);
      for (std::size_t s = 0; s < 30; ++s) EXPECT_NEAR(by_sparse.first[s], by_dense.first[s], 1e-3) << s;
      for (std::size_t i = 0; i < small.features; ++i)
        ASSERT_NEAR(by_sparse.second[i], by_dense.second[i], 1e-4) << "weight " << i << " on " << ranks << " ranks";
    }
    EXPECT_LT(alone.first.back(), 0.9 * alone.first.front());
  }
}

/// The same gather as sparse_gather, of whole vectors.
struct dense_gather {
  spar::threads& net;
  std::vector<float> values;

  linear::durations operator()(const linear::changes& mine, linear::changes& all) {
    for (std::size_t c = 0; c < mine.indices.size(); ++c) values[mine.indices[c]] = mine.values[c];
    spar::allgather(net, values);
    all = {};
    for (std::uint32_t i = 0; i < values.size(); ++i) {
      if (values[i] == 0) continue;
      all.indices.push_back(i);
      all.values.push_back(std::exchange(values[i], 0.0F));
    }
    return {};
  }
};

/// What coordinate descent leaves on the last rank: the mean loss after each pass, and the weights.
template <class ExchangeOf>
trained descend(spar::rank_t ranks, const ExchangeOf& exchange_of) {
  const samples all = linear::synthetic(small, 6).part(0, 1);
  const linear::columns by_column(all, small.features);
  trained result;
  spar::thread_group group(ranks);
  group.run([&](spar::threads& net) {
    const spar::index_range block = spar::uniform_ownership{small.features, ranks}[net.rank()];
    const linear::scd_options its{10, 40, block.begin, block.end, static_cast<std::size_t>(ranks)};
    std::mt19937_64 random(static_cast<std::uint64_t>(net.rank()));
    std::vector<float> weights(small.features);
    std::vector<double> scores(all.size()), losses;
    auto exchange = exchange_of(net);
    for (int pass = 0; pass < 6; ++pass) {
      linear::scd_pass(by_column, its, random, weights, scores, exchange);
      double sum = 0;
      for (std::size_t i = 0; i < all.size(); ++i) {
        EXPECT_NEAR(scores[i], linear::score(all[i], weights), 1e-4);
        sum += linear::loss_of(linear::loss::logistic, all.labels[i], scores[i]);
      }
      losses.push_back(sum / static_cast<double>(all.size()));
    }
    if (net.rank() + 1 == ranks) result = {losses, weights};
  });
  return result;
}

TEST(linear, coordinate_descent_has_the_same_bits_by_sparse_and_by_dense_gathers) {
  for (const spar::rank_t ranks : {1, 3, 4}) {
    const trained by_sparse = descend(
        ranks, [](spar::threads& net) { return linear::sparse_gather<spar::threads>{net, small.features, [] {}}; });
    const trained by_dense =
        descend(ranks, [](spar::threads& net) { return dense_gather{net, std::vector<float>(small.features)}; });
    EXPECT_EQ(by_sparse, by_dense);
    EXPECT_LT(by_sparse.first[0], std::log(2));
    EXPECT_TRUE(std::is_sorted(by_sparse.first.rbegin(), by_sparse.first.rend())); // the loss falls in every pass
  }
}

} // namespace
} // namespace spar_test
