// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Data sets made by a formula, with the shapes of two sets of texts: URL, and Webspam by trigrams (SparCML, table 1).
#pragma once

#include "samples.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace linear {

/// The shape of a data set: numbers of samples, features, and features of a sample.
struct shape {
  std::uint64_t samples, features, nonzeros;
};

constexpr shape url{2396130, 3231961, 115}, webspam{350000, 16609143, 3700};

/// Scrambles the bits of a number (the finalizer of SplitMix64).
constexpr std::uint64_t scrambled(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9U;
  x = (x ^ x >> 27) * 0x94d049bb133111ebU;
  return x ^ x >> 31;
}

/// Makes samples by their numbers. The j-th most popular feature is drawn with a probability proportional to 1/j
/// (Zipf's law). The indices of popular features are spread evenly. All features of a sample have the same value, and
/// the norm of a sample is 1. A hidden linear model gives the label, and 2 % of the labels are wrong.
class synthetic {
 public:
  synthetic(const shape& of, std::uint64_t seed)
      : shape_(of), seed_(scrambled(seed)),
        stride_(static_cast<std::uint64_t>(0.618 * static_cast<double>(of.features))) {
    while (std::gcd(stride_, shape_.features) != 1) ++stride_;
  }

  /// Appends the sample `number`.
  void append(std::uint64_t number, samples& into) const {
    std::uint64_t state = scrambled(seed_ + number);
    std::vector<std::uint32_t> features;
    const std::uint64_t count = std::min(shape_.nonzeros, shape_.features);
    const double range = std::log(static_cast<double>(shape_.features) + 1);
    while (features.size() < count) {
      while (features.size() < count) {
        const double uniform = static_cast<double>((state = scrambled(state)) >> 11) * 0x1p-53;
        const auto rank = static_cast<std::uint64_t>(std::exp(uniform * range)) - 1;
        features.push_back(static_cast<std::uint32_t>(std::min(rank, shape_.features - 1) * stride_ % shape_.features));
      }
      std::sort(features.begin(), features.end());
      features.erase(std::unique(features.begin(), features.end()), features.end());
    }
    double margin = 0;
    for (const std::uint32_t feature : features)
      margin += static_cast<double>(scrambled(seed_ ^ feature) >> 11) * 0x1p-53 - 0.5;
    const bool wrong = scrambled(state) % 50 == 0;
    into.indices.insert(into.indices.end(), features.begin(), features.end());
    into.values.resize(into.indices.size(), 1 / std::sqrt(static_cast<float>(count)));
    into.close((margin > 0) == wrong ? -1.0F : 1.0F);
  }

  /// The samples of a rank: part `shard` of `shards` equal parts.
  samples part(std::size_t shard, std::size_t shards) const {
    samples mine;
    for (std::uint64_t i = shape_.samples * shard / shards; i < shape_.samples * (shard + 1) / shards; ++i)
      append(i, mine);
    return mine;
  }

 private:
  shape shape_;
  std::uint64_t seed_, stride_;
};

} // namespace linear
