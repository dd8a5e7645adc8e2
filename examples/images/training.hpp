// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Mini-batch SGD on all ranks: a training with one system, and its measurements.
#pragma once

#include "../late.hpp"
#include "../ranks.hpp"
#include "model.hpp"
#include "options.hpp"
#include "systems.hpp"

#include <spar/mpi.hpp>
#include <spar/spar.hpp>

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace images {

using namespace examples;

/// The state when the accuracy is measured: the fraction of test images classified correctly, the bytes that a rank has
/// sent so far, the seconds that its steps have taken so far, and the mean and the largest value of xi since the last
/// measurement (see `assumption`), zero if there is none.
struct progress {
  double accuracy, bytes, seconds, xi_mean, xi_max;
};

/// Statistics of a number of entries over all steps.
struct tally {
  std::uint64_t most = 0;
  double sum = 0;
  double distance = 0; // sum of |count - k|

  void add(std::uint64_t count, std::uint64_t k) {
    most = std::max(most, count);
    sum += static_cast<double>(count);
    distance += static_cast<double>(count > k ? count - k : k - count);
  }
};

/// Seconds of the steps by phase, on this rank. The gradient of a system with overlap is computed first, and then
/// summed, in every 16th step and where xi is measured. These steps measure the phases; the others, the overlap.
struct phases {
  double computing = 0, selecting = 0, communicating = 0; // of steps one phase after the other
  double overlapped = 0;                                  // all of the other steps
  std::size_t in_turn = 0, at_once = 0;                   // numbers of these steps

  /// Adds a step, which has called the system for `calling` seconds, of which it has selected for `selecting`.
  void add(bool one_after_the_other, double seconds, double selected, double calling) {
    if (one_after_the_other) {
      computing += seconds, selecting += selected, communicating += calling - selected;
      ++in_turn;
    } else {
      overlapped += seconds + calling;
      ++at_once;
    }
  }
  /// The share of the communication, selection included, that is hidden by the computation; and the share that could
  /// be hidden at most. Zero without overlap. Collective.
  std::pair<double, double> hidden() const {
    const double steps = std::max<double>(1, static_cast<double>(in_turn));
    const double calls = over_ranks((selecting + communicating) / steps, MPI_SUM);
    const double alone = over_ranks(computing / steps, MPI_SUM);
    const double both = over_ranks(at_once > 0 ? overlapped / static_cast<double>(at_once) : 0, MPI_SUM);
    if (at_once == 0 || calls == 0) return {0, 0};
    return {(alone + calls - both) / calls, std::min(1.0, alone / calls)};
  }
};

/// A model in training with one system, and its measurements so far.
struct training {
  training(spar::mpi& world, const named_system& chosen, const options& how, std::uint64_t from)
      : system(chosen), seed(from), model({how.neurons[0], how.neurons[1]}, from), gradient(model.weights.size()),
        parts(model.parts(how.part)), k(system.selected_of(gradient.size())),
        by(system.known->make({&world, gradient.size(), k, system.quorum, system.codec, seed, parts, system.density})) {
  }

  named_system system;
  std::uint64_t seed;
  perceptron model;
  std::vector<float> gradient;
  std::vector<perceptron::part> parts;
  std::uint64_t k;
  std::unique_ptr<exchange> by;
  std::size_t steps = 0;
  double seconds = 0, bytes = 0; // seconds of the slowest rank; bytes as mean over ranks
  double words = 0;              // of 4 bytes, without headers, as mean over ranks
  std::vector<double> xi;        // the values since the last measurement (see `assumption`)
  tally selected, summed;        // numbers of entries that this rank selects, and of entries of the sum
  double fresh = 0;              // number of ranks whose current gradient was in a step, summed over all steps
  std::uint64_t stale = 0;       // largest number of steps by which a gradient was late
  bool ranks_agree = true;
  phases took;
  std::vector<progress> history; // `options::tests` for each epoch
  std::string gradients_file;    // for the gradients in the last step; empty: not written
};

/// Writes the gradients of all ranks, one after the other, as binary32 numbers in the byte order of this machine, for
/// `scripts/perf --kernels --gradients` and `bench/volume_bound.py`. Collective; rank 0 writes.
inline void save_gradients(const std::string& path, std::span<const float> mine) {
  std::vector<float> all(my_rank() == 0 ? mine.size() * number_of_ranks() : 0);
  const int n = spar::checked_cast<int>(mine.size());
  MPI_Gather(mine.data(), n, MPI_FLOAT, all.data(), n, MPI_FLOAT, 0, MPI_COMM_WORLD);
  if (my_rank() > 0) return;
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(all.data()), static_cast<std::streamsize>(all.size() * sizeof(float)));
  file.close();
  if (!file) throw std::runtime_error(fmt::format("{} cannot be written", path));
}

/// Measures xi of assumption 1 of Ok-Topk (section 4.1): the norm of the difference between a step and an exact step,
/// which subtracts the k largest entries of all ranks' gradients and residuals together, divided by the norm of the
/// mean gradient times the rate. The time and messages of this measurement are not counted.
class assumption {
 public:
  /// Must be constructed before the step. Collective.
  assumption(const training& job, float rate) : wanted_(job.gradient.size()), k_(job.k) {
    const float part = rate / static_cast<float>(number_of_ranks());
    for (std::size_t i = 0; i < wanted_.size(); ++i) wanted_[i] = part * job.gradient[i];
    unit_ = norm(sum_over_ranks());
    const std::span<const float> left = job.by->residual();
    if (left.empty()) return;
    std::vector<float> residual(left.begin(), left.end());
    for (float& x : residual) x /= static_cast<float>(number_of_ranks());
    residual.swap(wanted_);
    sum_over_ranks();
    for (std::size_t i = 0; i < wanted_.size(); ++i) wanted_[i] += residual[i];
  }

  /// Returns xi after the step that made the update `made`; a system with overlap has the update in `gradient`.
  double xi(const update& made, std::span<const float> gradient, bool overlaps, spar::pool& memory) {
    const auto largest = spar::select(spar::selector::exact_topk{.k = k_}, std::span(wanted_), memory);
    std::fill(wanted_.begin(), wanted_.end(), 0.0F);
    largest.for_each([&](auto i, float x) { wanted_[i] += x; });
    made.sum.for_each([&](auto i, float x) { wanted_[i] -= x; });
    for (std::size_t i = 0; overlaps && i < wanted_.size(); ++i) wanted_[i] -= gradient[i];
    return norm(wanted_) / unit_;
  }

 private:
  std::span<const float> sum_over_ranks() {
    const int n = spar::checked_cast<int>(wanted_.size());
    MPI_Allreduce(MPI_IN_PLACE, wanted_.data(), n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    return wanted_;
  }
  static double norm(std::span<const float> x) {
    return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
  }

  std::vector<float> wanted_;
  double unit_ = 0;
  std::uint64_t k_;
};

/// The numbers of this rank's images in a step, taken from a random order of all images that all ranks share.
inline std::span<const std::uint32_t> batch_of(std::span<const std::uint32_t> order, std::size_t step,
                                               std::size_t batch) {
  return order.subspan((step * number_of_ranks() + my_rank()) * batch, batch);
}

/// The learning rate rises over the first half of the first epoch, then falls to zero; it is the same for every system.
inline float rate_at(std::size_t step, std::size_t steps_an_epoch, const options& chosen) {
  const auto at = static_cast<float>(step) + 1;
  const float up = at / (static_cast<float>(steps_an_epoch) / 2);
  const float left = 1 - (at - 1) / static_cast<float>(steps_an_epoch * chosen.epochs);
  return chosen.rate * std::min({up, left, 1.0F});
}

inline std::uint64_t nonzeros(std::span<const float> x) {
  return x.size() - static_cast<std::uint64_t>(std::count(x.begin(), x.end(), 0.0F));
}

/// Trains until the accuracy is measured again: in each step, every rank computes the gradient of its own batch, and
/// all ranks make the same step. Collective.
inline void train(spar::mpi& world, training& job, const image_set& images, const options& chosen) {
  std::vector<std::uint32_t> order(images.size());
  std::iota(order.begin(), order.end(), 0U);
  std::mt19937_64 random(job.seed << 32 | job.history.size() / chosen.tests); // another order for each epoch
  std::shuffle(order.begin(), order.end(), random);

  const std::size_t steps = images.size() / (chosen.batch * number_of_ranks());
  const std::size_t piece = job.history.size() % chosen.tests; // of the epoch
  const std::size_t first = steps * piece / chosen.tests, end = steps * (piece + 1) / chosen.tests;
  const bool ends = job.history.size() + 1 == std::size_t{chosen.epochs} * chosen.tests;
  job.xi.clear();
  const spar::statistics before = world.statistics();
  double seconds = 0;
  for (std::size_t s = first; s < end; ++s, ++job.steps) {
    const float rate = rate_at(job.steps, steps, chosen);
    const bool saves = ends && s + 1 == end && !job.gradients_file.empty();
    const bool measures = job.system.known->selects() && s % 50 == 0;
    const bool overlaps = job.by->overlaps(), in_turn = !overlaps || measures || saves || s % 16 == 0;
    std::size_t part = 0;
    const auto ready = [&](const perceptron::part& p) {
      job.by->ready(part++, std::span(job.gradient).subspan(p.begin, p.end - p.begin), rate);
      if (!in_turn) job.by->progress(); // messages of all parts move between the parts of the computation
    };
    double start = MPI_Wtime();
    if (in_turn)
      job.model.gradient(images, batch_of(order, s, chosen.batch), job.gradient);
    else
      job.model.gradient(images, batch_of(order, s, chosen.batch), job.gradient, chosen.part, ready);
    const double delay = chosen.late.of(job.steps, my_rank(), number_of_ranks(), job.seed);
    sleep_until(start + chosen.step + delay, *job.by, 3e-4);
    const double computing = MPI_Wtime() - start;

    if (saves) save_gradients(job.gradients_file, job.gradient);
    std::unique_ptr<assumption> measured;
    if (measures) measured = std::make_unique<assumption>(job, rate);

    start = MPI_Wtime();
    if (overlaps && in_turn) std::for_each(job.parts.begin(), job.parts.end(), ready);
    const double started = MPI_Wtime() - start;
    const update made = job.by->step(world, job.model.weights, job.gradient, rate);
    const double calling = MPI_Wtime() - start;
    seconds += computing + calling;
    job.took.add(in_turn, computing, overlaps ? started : job.by->selecting(), calling);

    const spar::participants* const who = job.by->participants();
    job.fresh += who == nullptr ? number_of_ranks() : static_cast<double>(who->fresh());
    if (who != nullptr) job.stale = std::max(job.stale, who->staleness());
    job.selected.add(job.by->selected(made), job.k);
    job.summed.add(overlaps ? nonzeros(job.gradient) : made.sum.count(), job.k);
    if (measured) job.xi.push_back(measured->xi(made, job.gradient, overlaps, world.memory()));
  }
  if (ends) {
    const double start = MPI_Wtime();
    job.by->finish(job.model.weights);
    seconds += MPI_Wtime() - start;
    if (const spar::participants* who = job.by->participants()) job.stale = std::max(job.stale, who->staleness());
  }
  const spar::statistics after = world.statistics();
  const auto sent = after.bytes_sent + after.header_bytes_sent - before.bytes_sent - before.header_bytes_sent;
  const double P = number_of_ranks();
  const double unseen = job.by->bytes_unseen(static_cast<double>(job.gradient.size()), P);
  job.bytes += over_ranks(sent, MPI_SUM) / P + static_cast<double>(end - first) * unseen;
  job.words +=
      (over_ranks(after.bytes_sent - before.bytes_sent, MPI_SUM) / P + static_cast<double>(end - first) * unseen) / 4;
  job.seconds += over_ranks(seconds, MPI_MAX);
}

/// Measures the accuracy on the test images, and checks that the weights of all ranks are bitwise identical.
/// Collective.
inline void examine(training& job, const image_set& images) {
  std::vector<std::uint32_t> mine;
  for (std::size_t i = my_rank(); i < images.size(); i += number_of_ranks()) mine.push_back(std::uint32_t(i));
  std::size_t right = 0;
  for (std::size_t at = 0; at < mine.size(); at += 500) {
    right += job.model.right(images, std::span(mine).subspan(at, std::min<std::size_t>(500, mine.size() - at)));
  }
  double xi_mean = 0, xi_max = 0;
  for (const double xi : job.xi) {
    xi_mean += xi / static_cast<double>(job.xi.size());
    xi_max = std::max(xi_max, xi);
  }
  job.history.push_back(
      {over_ranks(right, MPI_SUM) / static_cast<double>(images.size()), job.bytes, job.seconds, xi_mean, xi_max});
  const std::uint32_t weights = spar::crc32c(job.model.weights.data(), job.model.weights.size() * sizeof(float));
  job.ranks_agree = job.ranks_agree && over_ranks(weights, MPI_MIN) == over_ranks(weights, MPI_MAX);
}

} // namespace images
