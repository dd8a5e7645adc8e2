// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// SGD: each rank computes the gradient of its own batch, which is zero for features that no sample of the batch has,
// and all ranks subtract the sum.
#pragma once

#include "model.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace linear {

struct sgd_options {
  loss kind = loss::logistic;
  std::size_t batch = 1000; // samples of a rank in a step
  std::size_t steps = 0;    // the same on all ranks
  double rate = 10;
  std::size_t ranks = 1;
};

/// Makes one pass over this rank's samples; a rank that runs out of samples takes part with an empty gradient.
/// `exchange(gradient, weights)` subtracts the sum of all ranks' gradients from the weights, sets the gradient to zero,
/// and returns how long that took. Appends the losses of this rank's batches to `losses`.
template <class Exchange>
durations sgd_pass(const samples& mine, const sgd_options& chosen, std::span<float> weights, gradient& step,
                   Exchange&& exchange, std::vector<double>& losses) {
  durations all;
  const auto rate = chosen.rate / static_cast<double>(chosen.batch * chosen.ranks);
  const double start = seconds_now();
  for (std::size_t s = 0; s < chosen.steps; ++s) {
    double sum = 0;
    for (std::size_t i = s * chosen.batch; i < std::min((s + 1) * chosen.batch, mine.size()); ++i) {
      const sample one = mine[i];
      const double z = score(one, weights);
      sum += loss_of(chosen.kind, one.label, z);
      const double slope = slope_of(chosen.kind, one.label, z);
      if (slope != 0) step.add(one, static_cast<float>(rate * slope));
    }
    losses.push_back(sum);
    const durations took = exchange(step, weights);
    all.waiting += took.waiting;
    all.communicating += took.communicating;
  }
  all.computing = seconds_now() - start - all.waiting - all.communicating;
  return all;
}

} // namespace linear
