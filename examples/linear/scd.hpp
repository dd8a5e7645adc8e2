// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Stochastic coordinate descent for logistic regression: in each step, each rank draws coordinates from its own block
// of the weights and computes their changes, and all ranks gather the changes. Every rank has all samples, by columns.
#pragma once

#include "model.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

namespace linear {

/// The samples as columns of a sparse matrix (CSC): column j has the samples with feature j.
struct columns {
  std::vector<float> labels;
  std::vector<std::size_t> begins; // of each column, and the end of the last
  std::vector<std::uint32_t> rows;
  std::vector<float> values;
  std::size_t densest = 0; // the most features of a sample

  columns(const samples& all, std::size_t features)
      : labels(all.labels), begins(features + 1), rows(all.indices.size()), values(all.indices.size()) {
    for (const std::uint32_t j : all.indices) ++begins[j + 1];
    for (std::size_t j = 0; j < features; ++j) begins[j + 1] += begins[j];
    std::vector<std::size_t> next(begins.begin(), begins.end() - 1);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const sample one = all[i];
      densest = std::max(densest, one.indices.size());
      for (std::size_t k = 0; k < one.indices.size(); ++k) {
        const std::size_t at = next[one.indices[k]]++;
        rows[at] = static_cast<std::uint32_t>(i);
        values[at] = one.values[k];
      }
    }
  }
};

struct scd_options {
  std::size_t coordinates = 100; // of a rank in a step
  std::size_t steps = 0;
  std::size_t begin = 0, end = 0; // this rank's block of the weights
  std::size_t ranks = 1;
};

/// The changes of some weights, by ascending indices.
struct changes {
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
};

/// Makes `chosen.steps` steps. `scores` holds what the model says of each sample, the same on all ranks.
/// `exchange(mine, all)` gathers the changes of all ranks by ascending indices, and returns how long that took.
///
/// A change is the step of Newton's method with the bound 1/4 of the second derivative, divided by a factor, since all
/// drawn coordinates change at once: 1 + (w - 1)(t - 1) / (n - 1) for t coordinates, and at most w features of a sample
/// (Richtarik and Takac, Parallel coordinate descent methods for big data optimization, 2016, theorem 12).
template <class Exchange>
durations scd_pass(const columns& all, const scd_options& chosen, std::mt19937_64& random, std::span<float> weights,
                   std::span<double> scores, Exchange&& exchange) {
  durations spent;
  changes mine, gathered;
  const auto most = [](std::size_t x) { return static_cast<double>(std::max<std::size_t>(x, 1) - 1); };
  const std::size_t together = std::min(chosen.coordinates * chosen.ranks, weights.size());
  const double factor = 1 + most(all.densest) * most(together) / std::max(1.0, most(weights.size()));
  const double start = seconds_now();
  for (std::size_t s = 0; s < chosen.steps; ++s) {
    mine.indices.clear();
    mine.values.clear();
    for (std::size_t c = 0; c < chosen.coordinates && chosen.begin < chosen.end; ++c)
      mine.indices.push_back(static_cast<std::uint32_t>(chosen.begin + random() % (chosen.end - chosen.begin)));
    std::sort(mine.indices.begin(), mine.indices.end());
    mine.indices.erase(std::unique(mine.indices.begin(), mine.indices.end()), mine.indices.end());
    for (const std::uint32_t j : mine.indices) {
      double slope = 0, curvature = 0;
      for (std::size_t k = all.begins[j]; k < all.begins[j + 1]; ++k) {
        const double x = static_cast<double>(all.values[k]);
        slope += x * slope_of(loss::logistic, all.labels[all.rows[k]], scores[all.rows[k]]);
        curvature += x * x / 4;
      }
      mine.values.push_back(curvature > 0 ? static_cast<float>(-slope / curvature / factor) : 0.0F);
    }
    const durations took = exchange(mine, gathered);
    spent.waiting += took.waiting;
    spent.communicating += took.communicating;
    for (std::size_t c = 0; c < gathered.indices.size(); ++c) {
      const std::size_t j = gathered.indices[c];
      weights[j] += gathered.values[c];
      for (std::size_t k = all.begins[j]; k < all.begins[j + 1]; ++k)
        scores[all.rows[k]] += static_cast<double>(gathered.values[c]) * static_cast<double>(all.values[k]);
    }
  }
  spent.computing = seconds_now() - start - spent.waiting - spent.communicating;
  return spent;
}

} // namespace linear
