// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Training while ranks are late in each step. Steps have a given duration, during most of which the ranks sleep,
// so that a machine with few cores can run the ranks of a large one.
#pragma once

#include "../eager.hpp"
#include "../late.hpp"
#include "../ranks.hpp"
#include "data.hpp"
#include "model.hpp"
#include "options.hpp"

#include <spar/mpi.hpp>
#include <spar/spar.hpp>

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <span>
#include <vector>

namespace hyperplane {

using namespace examples;

/// The state of the training after some steps.
struct snapshot {
  unsigned step;
  double seconds; // since the common start of all ranks; of the slowest rank
  double loss;    // mean squared error over the validation points
};

/// The measurements of one training.
struct training {
  double seconds = 0;      // from the start until all ranks have finished
  double computing = 0;    // processor seconds per step, mean over steps and ranks
  double calling = 0;      // seconds inside the optimizer's step(), mean over steps and ranks
  double fresh = 0;        // number of ranks whose current gradient is in a round, mean over rounds
  std::uint64_t stale = 0; // largest number of steps by which a gradient was late
  std::vector<snapshot> history;
  bool ranks_agree = true;
};

/// The learning rate is constant in the first half, and falls linearly to zero in the second half.
inline float rate_at(unsigned step, const options& chosen) {
  const float left = static_cast<float>(chosen.steps - step) / static_cast<float>(chosen.steps);
  return chosen.rate * std::min(2 * left, 1.0F);
}

/// Computes the loss of each snapshot, whose weights are the columns of `weights`, and checks that all ranks have the
/// same weights. Collective.
inline void examine(training& job, const matrix& weights, const points& all, const options& chosen) {
  Eigen::VectorXd sums = Eigen::VectorXd::Zero(weights.cols());
  batch some(chosen.dimension, 32);
  for (std::size_t at = 32 * my_rank(); at < chosen.validation; at += 32 * number_of_ranks()) {
    if (chosen.validation - at < some.size()) some = batch(chosen.dimension, chosen.validation - at);
    all.read(chosen.points + at, some);
    sums += squared_errors(weights, some);
  }
  const auto count = static_cast<int>(job.history.size());
  MPI_Allreduce(MPI_IN_PLACE, sums.data(), count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  for (snapshot& s : job.history) {
    s.loss = sums[&s - job.history.data()] / static_cast<double>(chosen.validation);
    s.seconds = over_ranks(s.seconds, MPI_MAX);
  }
  const auto bytes = static_cast<std::size_t>(weights.size()) * sizeof(float);
  const std::uint32_t sum = spar::crc32c(weights.data(), bytes);
  job.ranks_agree = over_ranks(sum, MPI_MIN) == over_ranks(sum, MPI_MAX);
}

/// Trains with one participation, starting from weights of zero. Collective.
inline training train(spar::mpi& world, const participation& who, const points& all, const options& chosen) {
  training job;
  const std::size_t n = chosen.dimension;
  const unsigned between = std::max(1U, chosen.steps / 48); // number of steps between two snapshots
  std::vector<float> weights(n), slope(n);
  matrix kept = matrix::Zero(static_cast<Eigen::Index>(n), chosen.steps / between + 2);
  batch mine(n, chosen.batch);
  const std::unique_ptr<optimizer> by = optimizer_of(who, world, n, {.rounds = {.tau = chosen.tau}});

  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  const auto keep = [&](unsigned step) {
    std::copy(weights.begin(), weights.end(), kept.col(static_cast<Eigen::Index>(job.history.size())).begin());
    job.history.push_back({step, MPI_Wtime() - start, 0});
  };
  const auto account = [&](const spar::participants& round) {
    job.stale = std::max(job.stale, round.staleness());
    return round.fresh();
  };
  keep(0);
  for (unsigned s = 0; s < chosen.steps; ++s) {
    const double begin = MPI_Wtime();
    const std::clock_t before = std::clock();
    const std::uint64_t number = std::uint64_t{s} * number_of_ranks() + my_rank(); // of the batch
    all.read(number % (chosen.points / chosen.batch) * chosen.batch, mine);
    gradient(weights, mine, slope);
    job.computing += static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;

    const double delay = chosen.late.of(s, my_rank(), number_of_ranks(), chosen.seed);
    sleep_until(begin + chosen.step + delay, *by, chosen.nap);

    const double call = MPI_Wtime();
    job.fresh += account(by->step(weights, slope, rate_at(s, chosen)));
    job.calling += MPI_Wtime() - call;
    if ((s + 1) % between == 0 && s + 1 < chosen.steps) keep(s + 1);
  }
  account(by->finish(weights));
  keep(chosen.steps);

  const double per_step = 1.0 / chosen.steps, per_rank = per_step / number_of_ranks();
  job.fresh *= per_step;
  job.computing = over_ranks(job.computing, MPI_SUM) * per_rank;
  job.calling = over_ranks(job.calling, MPI_SUM) * per_rank;
  examine(job, kept.leftCols(static_cast<Eigen::Index>(job.history.size())), all, chosen);
  job.seconds = job.history.back().seconds;
  return job;
}

} // namespace hyperplane
