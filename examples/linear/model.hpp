// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Linear classifiers of two classes, and the sparse gradient of a batch.
#pragma once

#include "samples.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace linear {

/// What a sample with the label y, 1 or -1, costs if the model says z: log(1 + exp(-y z)), or max(0, 1 - y z).
enum class loss { logistic, hinge };

inline double loss_of(loss kind, float label, double z) {
  const double margin = static_cast<double>(label) * z;
  if (kind == loss::hinge) return std::max(0.0, 1 - margin);
  return margin > 0 ? std::log1p(std::exp(-margin)) : std::log1p(std::exp(margin)) - margin;
}

/// The derivative of the loss with respect to z.
inline double slope_of(loss kind, float label, double z) {
  const double y = static_cast<double>(label);
  if (kind == loss::hinge) return y * z < 1 ? -y : 0;
  return -y / (1 + std::exp(y * z));
}

inline double score(const sample& one, std::span<const float> weights) {
  double z = 0;
  for (std::size_t k = 0; k < one.indices.size(); ++k)
    z += static_cast<double>(weights[one.indices[k]]) * static_cast<double>(one.values[k]);
  return z;
}

/// A dense vector with few nonzeros, which it finds again by a bit for each entry.
struct gradient {
  std::vector<float> dense;
  std::vector<std::uint64_t> touched;

  explicit gradient(std::size_t n) : dense(n), touched((n + 63) / 64) {}

  void add(const sample& one, float scale) {
    for (std::size_t k = 0; k < one.indices.size(); ++k) {
      const std::uint32_t i = one.indices[k];
      dense[i] += scale * one.values[k];
      touched[i / 64] |= std::uint64_t{1} << i % 64;
    }
  }

  /// Moves the touched entries into the two vectors by ascending indices, and sets the gradient to zero.
  void move_to(std::vector<std::uint32_t>& indices, std::vector<float>& values) {
    for (std::size_t block = 0; block < touched.size(); ++block) {
      for (; touched[block] != 0; touched[block] &= touched[block] - 1) {
        const std::size_t i = 64 * block + static_cast<std::size_t>(std::countr_zero(touched[block]));
        indices.push_back(static_cast<std::uint32_t>(i));
        values.push_back(std::exchange(dense[i], 0.0F));
      }
    }
  }
};

/// Seconds of a rank.
struct durations {
  double computing = 0, waiting = 0, communicating = 0; // waiting: until the last rank has its part ready
};

inline double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

} // namespace linear
