// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Multinomial logistic regression on the hashed character n-grams of a word.
#pragma once

#include "corpus.hpp"

#include <spar/core/rows.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace langid {

/// The n-grams of a word as buckets in [0, 2^bits). An n-gram has 2 to 5 letters; '<' and '>' mark the ends of the
/// word.
inline std::vector<std::uint32_t> n_grams(std::u32string_view word, unsigned bits) {
  const std::u32string marked = U'<' + std::u32string(word) + U'>';
  std::vector<std::uint32_t> buckets;
  for (std::size_t first = 0; first < marked.size(); ++first) {
    std::uint64_t hash = mix(0, marked[first]);
    for (std::size_t last = first + 1; last < std::min(first + 5, marked.size()); ++last) {
      hash = mix(hash, marked[last]);
      buckets.push_back(static_cast<std::uint32_t>(hash >> (64 - bits)));
    }
  }
  return buckets;
}

/// Eight adjacent weights, or their gradient, which travel under one index: a bucket of the default word lists.
using row = spar::row<float, 8>;
constexpr std::size_t width = spar::width_of<row>;

/// `languages` weights per bucket; the weight of (bucket, language) has the index bucket * languages +
/// language.
struct classifier {
  std::size_t languages;
  unsigned bits;
  std::vector<float> weights = std::vector<float>(languages << bits);

  /// The probability of each language, given the buckets of a word's n-grams.
  std::vector<float> probabilities(std::span<const std::uint32_t> buckets) const {
    std::vector<float> result(languages);
    for (const std::uint32_t bucket : buckets) {
      for (std::size_t l = 0; l < languages; ++l) result[l] += weights[bucket * languages + l];
    }
    const float scale = 1 / std::sqrt(static_cast<float>(buckets.size()));
    const float largest = *std::max_element(result.begin(), result.end());
    float total = 0;
    for (float& p : result) total += p = std::exp(scale * (p - largest));
    for (float& p : result) p /= total;
    return result;
  }

  /// The number of words for which the most probable language is the right one.
  double right(std::span<const labelled_word> words) const {
    return static_cast<double>(std::count_if(words.begin(), words.end(), [&](const labelled_word& word) {
      const std::vector<float> p = probabilities(n_grams(word.text, bits));
      return std::max_element(p.begin(), p.end()) - p.begin() == word.language;
    }));
  }
};

/// The gradient of the loss over a batch: a dense vector, nonzero only in the weights of the batch's n-grams.
struct gradient {
  std::vector<float> dense;
  std::vector<std::uint64_t> touched; // one bit per row of the dense vector
  std::size_t languages;

  explicit gradient(const classifier& model)
      : dense(model.weights.size()), touched((dense.size() / width + 63) / 64), languages(model.languages) {}

  /// Adds `scale` times the gradient of -log p(language | word), which touches only the weights of the word's n-grams.
  void add(const classifier& model, const labelled_word& word, float scale) {
    const std::vector<std::uint32_t> buckets = n_grams(word.text, model.bits);
    std::vector<float> error = model.probabilities(buckets);
    error[word.language] -= 1;
    scale /= std::sqrt(static_cast<float>(buckets.size()));
    for (const std::uint32_t bucket : buckets) {
      for (std::size_t l = 0; l < languages; ++l) {
        const std::size_t i = bucket * languages + l;
        dense[i] += scale * error[l];
        touched[i / width / 64] |= std::uint64_t{1} << i / width % 64;
      }
    }
  }

  /// Moves the touched rows into the two vectors in ascending order of indices, and sets the gradient to zero.
  void move_to(std::vector<std::uint32_t>& indices, std::vector<row>& values) {
    const auto rows = spar::rows<width>(dense);
    for (std::size_t block = 0; block < touched.size(); ++block) {
      for (; touched[block] != 0; touched[block] &= touched[block] - 1) {
        const std::size_t i = 64 * block + static_cast<std::size_t>(std::countr_zero(touched[block]));
        indices.push_back(static_cast<std::uint32_t>(i));
        values.push_back(std::exchange(rows[i], row{}));
      }
    }
  }
};

} // namespace langid
