// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sequences of frames, generated on demand from their numbers. Their lengths are distributed like the numbers of frames
// of the videos in UCF101 (eager-SGD, section 2.1), and the class of a sequence is the order of three events.
#pragma once

#include <Eigen/Core>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <vector>

namespace sequences {

using matrix = Eigen::MatrixXf;
using vector = Eigen::VectorXf;

/// Sequences of different lengths, from the longest to the shortest, so that the sequences that have a frame t are
/// always the first ones. Each frame is a column of `frames`, in order of time: first the frames 0 of all sequences,
/// then the frames 1 of all sequences that have one, and so on.
struct batch {
  std::vector<std::size_t> lengths, classes; // of each sequence
  std::vector<Eigen::Index> first;           // first[t]: the column of frame t of the longest sequence
  matrix frames;

  std::size_t size() const { return lengths.size(); }
  std::size_t steps() const { return first.size() - 1; }
  /// The number of sequences that have a frame t.
  Eigen::Index active(std::size_t t) const { return first[t + 1] - first[t]; }
  /// The number of frames of all sequences, to which the time of a step is proportional.
  std::size_t total() const { return static_cast<std::size_t>(first.back()); }
};

/// The sequences with the numbers 0, 1, 2 and so on, the same on every rank for the same seed.
class source {
 public:
  static constexpr std::size_t channels = 3, classes = 6; // a channel for each event; a class for each order of events
  static constexpr float noise = 0.5F;                    // largest noise in a channel; an event has 1
  static constexpr std::size_t duration = 4;              // frames of an event

  /// Lengths have a log-normal distribution with the median `median` and the deviation `spread` of the logarithm, cut
  /// off at 29 and 1776 frames. A median of 167 and a spread of 0.485 give UCF101's median and deviation of 167 and 97.
  source(double median, double spread, std::uint64_t seed) : median_(median), spread_(spread), seed_(seed) {}

  /// The number of frames of a sequence.
  std::size_t length(std::uint64_t number) const {
    std::mt19937_64 random = random_of(number);
    return length_by(random);
  }

  /// Fills a batch with the sequences that have these numbers.
  void read(std::span<const std::uint32_t> numbers, batch& into) const {
    std::vector<std::pair<std::size_t, std::uint32_t>> order;
    for (const std::uint32_t number : numbers) order.emplace_back(length(number), number);
    std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    into.lengths.clear();
    for (const auto& [frames, number] : order) into.lengths.push_back(frames);
    into.first.assign(1, 0);
    auto active = static_cast<Eigen::Index>(order.size());
    for (std::size_t t = 0; t < into.lengths[0]; ++t) {
      while (into.lengths[static_cast<std::size_t>(active - 1)] <= t) --active;
      into.first.push_back(into.first.back() + active);
    }
    into.frames.resize(channels, into.first.back());
    into.classes.clear();
    for (std::size_t s = 0; s < order.size(); ++s) into.classes.push_back(fill(order[s].second, s, into));
  }

 private:
  std::mt19937_64 random_of(std::uint64_t number) const { return std::mt19937_64(seed_ << 32 | (number + 1)); }

  std::size_t length_by(std::mt19937_64& random) const {
    std::normal_distribution<double> deviation(0, 1);
    return static_cast<std::size_t>(std::clamp(median_ * std::exp(spread_ * deviation(random)), 29.0, 1776.0));
  }

  /// Writes the frames of the sequence `number` into the batch, as its sequence s, and returns the class.
  std::size_t fill(std::uint32_t number, std::size_t s, batch& into) const {
    std::mt19937_64 random = random_of(number);
    const std::size_t length = length_by(random);
    std::uint64_t bits = 0; // 16 bits for each value
    for (std::size_t t = 0; t < length; ++t) {
      auto frame = into.frames.col(into.first[t] + static_cast<Eigen::Index>(s));
      bits = random();
      for (float& x : frame) x = noise * (static_cast<float>(bits % 65536) / 32768 - 1), bits >>= 16;
    }
    // Each third of the sequence has one event, at a random time.
    std::array<std::size_t, channels> order{0, 1, 2};
    const std::size_t which = random() % classes;
    for (std::size_t i = 0; i < which; ++i) std::next_permutation(order.begin(), order.end());
    for (std::size_t part = 0; part < channels; ++part) {
      const std::size_t from = part * length / channels, until = (part + 1) * length / channels - duration;
      const std::size_t begin = from + random() % (until - from + 1);
      for (std::size_t t = begin; t < begin + duration; ++t) {
        into.frames(static_cast<Eigen::Index>(order[part]), into.first[t] + static_cast<Eigen::Index>(s)) += 1;
      }
    }
    return which;
  }

  double median_, spread_;
  std::uint64_t seed_;
};

/// The batches of an epoch: sequences of similar lengths are in one bucket, a batch is drawn from one bucket, and the
/// order of the batches is random, so that the batches of a step have different lengths (eager-SGD, section 2.1).
class epoch {
 public:
  /// `by_length` holds the numbers of all sequences, in order of their lengths.
  epoch(std::vector<std::uint32_t> by_length, std::size_t buckets, std::size_t size, std::uint64_t seed)
      : numbers_(std::move(by_length)), size_(size), order_(numbers_.size() / size) {
    std::mt19937_64 random(seed);
    for (std::size_t b = 0; b < buckets; ++b) {
      const auto at = [&](std::size_t i) { return numbers_.begin() + static_cast<std::ptrdiff_t>(i); };
      std::shuffle(at(b * numbers_.size() / buckets), at((b + 1) * numbers_.size() / buckets), random);
    }
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::shuffle(order_.begin(), order_.end(), random);
  }
  /// The number of batches, each of one rank and one step.
  std::size_t size() const { return order_.size(); }
  /// The numbers of the sequences in batch i.
  std::span<const std::uint32_t> operator[](std::size_t i) const {
    return std::span(numbers_).subspan(order_[i] * size_, size_);
  }

 private:
  std::vector<std::uint32_t> numbers_;
  std::size_t size_;
  std::vector<std::size_t> order_;
};

} // namespace sequences
