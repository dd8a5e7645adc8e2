// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One rank's part of a training, without its communication: the batches, the gradients, and what is measured.
#pragma once

#include "data.hpp"
#include "model.hpp"
#include "options.hpp"

#include <spar/collective/partial/participants.hpp>
#include <spar/core/util/crc32c.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

namespace sequences {

/// What all trainings share: the sequences, in order of their lengths, and a model to compute with.
struct problem {
  explicit problem(const options& chosen)
      : all(chosen.median, chosen.spread, chosen.seed), by_length(chosen.sequences), model(chosen.units) {
    std::vector<std::size_t> lengths(by_length.size());
    for (std::size_t i = 0; i < lengths.size(); ++i) lengths[i] = all.length(i);
    std::iota(by_length.begin(), by_length.end(), 0U);
    std::stable_sort(by_length.begin(), by_length.end(), [&](auto a, auto b) { return lengths[a] < lengths[b]; });
  }

  /// The share of the validation sequences that these weights classify right.
  double accuracy(std::span<const float> weights, const options& chosen) {
    std::size_t right = 0;
    batch some;
    for (std::size_t at = 0; at < chosen.validation; at += 64) {
      std::vector<std::uint32_t> numbers(std::min<std::size_t>(64, chosen.validation - at));
      std::iota(numbers.begin(), numbers.end(), static_cast<std::uint32_t>(chosen.sequences + at));
      all.read(numbers, some);
      right += model.right(weights, some);
    }
    return static_cast<double>(right) / static_cast<double>(chosen.validation);
  }

  source all;
  std::vector<std::uint32_t> by_length;
  lstm<float> model;
};

/// The state after an epoch: the seconds since the start, and the weights.
struct snapshot {
  double seconds;
  std::vector<float> weights;
};

/// One rank in one training.
class learner {
 public:
  learner(problem& given, const options& chosen, unsigned rank, unsigned ranks, std::uint64_t seed)
      : weights(given.model.initial(seed, 300)), gradient(weights.size()), given_(&given), chosen_(&chosen),
        rank_(rank), ranks_(ranks), seed_(seed) {}

  /// The number of steps of an epoch, and of the training.
  std::size_t steps_an_epoch() const { return chosen_->sequences / (std::size_t{chosen_->batch} * ranks_); }
  std::size_t steps() const { return chosen_->epochs * steps_an_epoch(); }

  /// Computes the gradient of this rank's batch in a step. Returns the seconds that the step takes: those of its
  /// frames, and the delay. A gradient with a norm above 1 is scaled to the norm 1, because gradients of long sequences
  /// may explode.
  double compute(std::size_t step) {
    const std::size_t at = step % steps_an_epoch();
    if (at == 0) {
      constexpr std::size_t buckets = 16;
      batches_.emplace(given_->by_length, buckets, chosen_->batch, seed_ << 32 | step);
    }
    given_->all.read((*batches_)[at * ranks_ + rank_], mine_);
    given_->model.gradient(weights, mine_, gradient);
    const double norm = std::sqrt(std::inner_product(gradient.begin(), gradient.end(), gradient.begin(), 0.0));
    if (norm > 1) {
      for (float& g : gradient) g = static_cast<float>(g / norm);
    }
    frames.push_back(static_cast<double>(mine_.total()));
    return frames.back() * chosen_->frame + chosen_->late.of(step, rank_, ranks_, seed_);
  }

  /// The learning rate rises over the first tenth of the steps, is constant until half of the steps, and falls to zero.
  float rate(std::size_t step) const {
    const float at = static_cast<float>(step) / static_cast<float>(steps());
    return chosen_->rate * std::min({10 * at, 2 * (1 - at), 1.0F});
  }

  /// Whether the ranks average their weights after this step.
  bool averages(std::size_t steps_made) const {
    return chosen_->average > 0 && steps_made % (chosen_->average * steps_an_epoch()) == 0;
  }

  /// Notes the ranks that took part in a step, or in the last round.
  void account(const spar::participants& round) {
    stale = std::max(stale, round.staleness());
    if (round.round() <= steps()) fresh += round.fresh();
  }
  void keep(double seconds) { history.push_back({seconds, weights}); }
  /// A checksum of the weights of all epochs.
  std::uint32_t checksum() const {
    std::uint32_t sum = 0;
    for (const snapshot& s : history) sum = sum * 31 + spar::crc32c(s.weights.data(), s.weights.size() * sizeof(float));
    return sum;
  }

  std::vector<float> weights, gradient;
  std::vector<snapshot> history;
  std::vector<double> frames; // in the batch of each step
  double fresh = 0;           // number of ranks whose current gradient is in a round, summed over the steps
  std::uint64_t stale = 0;    // largest number of steps by which a gradient was late

 private:
  problem* given_;
  const options* chosen_;
  unsigned rank_, ranks_;
  std::uint64_t seed_;
  std::optional<epoch> batches_;
  batch mine_;
};

} // namespace sequences
