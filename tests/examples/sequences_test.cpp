// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The parts of examples/sequences: the lengths of the sequences, the batches, and the slope of the model's loss.
#include "../../examples/sequences/data.hpp"
#include "../../examples/sequences/model.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace spar_test {
namespace {

using sequences::batch, sequences::epoch, sequences::lstm, sequences::source;

std::vector<std::uint32_t> numbers(std::size_t count, std::uint32_t first = 0) {
  std::vector<std::uint32_t> all(count);
  std::iota(all.begin(), all.end(), first);
  return all;
}

TEST(sequences, lengths_are_distributed_like_those_of_ucf101) {
  const source all(167, 0.485, 1);
  std::vector<double> lengths;
  for (const std::uint32_t i : numbers(9537)) lengths.push_back(static_cast<double>(all.length(i)));
  std::sort(lengths.begin(), lengths.end());
  const double mean = std::accumulate(lengths.begin(), lengths.end(), 0.0) / 9537;
  double squares = 0;
  for (const double length : lengths) squares += (length - mean) * (length - mean);
  EXPECT_GE(lengths.front(), 29);
  EXPECT_LE(lengths.back(), 1776);
  EXPECT_NEAR(lengths[9537 / 2], 167, 3);
  EXPECT_NEAR(std::sqrt(squares / 9537), 97, 3);
}

TEST(sequences, a_frame_has_the_sequences_that_are_long_enough) {
  const source all(60, 0.5, 2);
  batch some;
  all.read(numbers(7), some);
  ASSERT_EQ(some.size(), 7U);
  ASSERT_EQ(some.steps(), some.lengths[0]);
  EXPECT_TRUE(std::is_sorted(some.lengths.rbegin(), some.lengths.rend()));
  for (std::size_t t = 0; t < some.steps(); ++t) {
    EXPECT_EQ(some.active(t), std::count_if(some.lengths.begin(), some.lengths.end(), [&](auto n) { return n > t; }));
  }
  EXPECT_EQ(some.total(), std::accumulate(some.lengths.begin(), some.lengths.end(), std::size_t{0}));
  EXPECT_EQ(some.total(), static_cast<std::size_t>(some.frames.cols()));
}

/// The order in which the channels of a sequence have their loudest frames gives its class.
TEST(sequences, the_class_is_the_order_of_the_events) {
  const source all(100, 0.4, 3);
  batch one;
  std::array<std::size_t, source::classes> seen{};
  for (std::uint32_t i = 0; i < 200; ++i) {
    all.read(std::span(&i, 1), one);
    std::array<Eigen::Index, source::channels> loudest{};
    for (std::size_t c = 0; c < source::channels; ++c) {
      const sequences::matrix frames = one.frames;
      // The mean over an event is above the noise.
      float most = 0;
      for (Eigen::Index t = 0; t + 4 <= frames.cols(); ++t) {
        const float here = frames.row(static_cast<Eigen::Index>(c)).segment(t, 4).sum();
        if (here > most) most = here, loudest[c] = t;
      }
    }
    std::array<std::size_t, source::channels> order{0, 1, 2};
    for (std::size_t k = 0; k < one.classes[0]; ++k) std::next_permutation(order.begin(), order.end());
    EXPECT_LT(loudest[order[0]], loudest[order[1]]) << i;
    EXPECT_LT(loudest[order[1]], loudest[order[2]]) << i;
    ++seen[one.classes[0]];
  }
  for (const std::size_t count : seen) EXPECT_GT(count, 15U);
}

TEST(sequences, an_epoch_has_every_sequence_once_in_batches_of_similar_lengths) {
  const source all(167, 0.485, 4);
  std::vector<std::uint32_t> by_length = numbers(512);
  std::sort(by_length.begin(), by_length.end(), [&](auto a, auto b) { return all.length(a) < all.length(b); });
  const epoch batches(by_length, 8, 16, 5), others(by_length, 8, 16, 6);
  ASSERT_EQ(batches.size(), 32U);
  std::vector<std::uint32_t> drawn, again;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    drawn.insert(drawn.end(), batches[i].begin(), batches[i].end());
    again.insert(again.end(), others[i].begin(), others[i].end());
    std::vector<std::size_t> buckets;
    for (const std::uint32_t number : batches[i]) {
      const auto place = std::find(by_length.begin(), by_length.end(), number) - by_length.begin();
      buckets.push_back(static_cast<std::size_t>(place) / 64);
    }
    EXPECT_EQ(std::count(buckets.begin(), buckets.end(), buckets[0]), 16) << i;
  }
  EXPECT_NE(drawn, again);
  std::sort(drawn.begin(), drawn.end());
  EXPECT_EQ(drawn, numbers(512));
}

/// Compares the gradient with central differences, for sequences of different and of equal lengths.
void check_gradient(double spread, std::size_t count) {
  const source all(29, spread, 6);
  batch some;
  all.read(numbers(count), some);
  lstm<double> model(3);
  std::vector<double> weights = model.initial(7, 30);
  std::vector<double> slope(weights.size()), scratch(weights.size());
  model.gradient(weights, some, slope);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double at = weights[i], step = 1e-5;
    weights[i] = at + step;
    const double above = model.gradient(weights, some, scratch);
    weights[i] = at - step;
    const double below = model.gradient(weights, some, scratch);
    weights[i] = at;
    EXPECT_NEAR(slope[i], (above - below) / (2 * step), 1e-8) << "weight " << i;
  }
}

TEST(sequences, the_gradient_is_the_slope_of_the_loss) {
  check_gradient(0.5, 5);
  check_gradient(0, 4);
  check_gradient(1, 1);
}

TEST(sequences, a_small_model_learns_the_order_of_events) {
  const source all(29, 0, 8);
  lstm<float> model(8);
  std::vector<float> weights = model.initial(9, 40), slope(weights.size());
  batch some;
  all.read(numbers(32), some);
  const double first = model.gradient(weights, some, slope);
  for (int step = 0; step < 400; ++step) {
    model.gradient(weights, some, slope);
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= slope[i];
  }
  EXPECT_GT(first, 1.6);
  EXPECT_EQ(model.right(weights, some), 32U);
}

} // namespace
} // namespace spar_test
