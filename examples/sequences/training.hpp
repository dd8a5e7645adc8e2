// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Training by eager-SGD: over MPI, where ranks sleep for what computing leaves of a step, and in the simulator, where
// steps take virtual time. A step takes as long as its frames, so that the ranks of a machine with few cores are as
// unequal as if each rank had a core.
#pragma once

#include "../eager.hpp"
#include "../late.hpp"
#include "../ranks.hpp"
#include "learner.hpp"
#include "options.hpp"

#include <spar/mpi.hpp>
#include <spar/sim.hpp>
#include <spar/spar.hpp>

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <variant>
#include <vector>

namespace sequences {

using namespace examples;

/// The state after an epoch, of all ranks.
struct progress {
  unsigned epoch;
  double seconds; // of the slowest rank
  double accuracy;
};

/// The measurements of one training.
struct training {
  std::vector<progress> history;
  std::size_t steps = 0;
  double fresh = 0;        // number of ranks whose current gradient is in a round, mean over rounds
  std::uint64_t stale = 0; // largest number of steps by which a gradient was late
  // Frames in the batch of a rank and step, over all ranks and steps.
  double least = 0, most = 0, mean = 0, deviation = 0;
  bool ranks_agree = true;
};

/// The measurements of a training whose learner on rank 0 is `own`. `largest(x)` and `sum(f)` reduce numbers of all
/// ranks: `sum(f)` adds up f(learner).
template <class Reduce>
training measured(const learner& own, problem& given, const options& chosen, Reduce over_learners) {
  training job;
  job.steps = own.steps();
  job.fresh = own.fresh / static_cast<double>(own.steps());
  job.stale = own.stale;
  const auto by_frames = [](auto part) { return [part](const learner& one) { return part(one.frames); }; };
  job.least = over_learners(by_frames([](auto& f) { return *std::min_element(f.begin(), f.end()); }), MPI_MIN);
  job.most = over_learners(by_frames([](auto& f) { return *std::max_element(f.begin(), f.end()); }), MPI_MAX);
  const double count = over_learners(by_frames([](auto& f) { return static_cast<double>(f.size()); }), MPI_SUM);
  job.mean =
      over_learners(by_frames([](auto& f) { return std::accumulate(f.begin(), f.end(), 0.0); }), MPI_SUM) / count;
  const auto squares = by_frames([](auto& f) { return std::inner_product(f.begin(), f.end(), f.begin(), 0.0); });
  job.deviation = std::sqrt(over_learners(squares, MPI_SUM) / count - job.mean * job.mean);
  const auto sum = [](const learner& one) { return static_cast<double>(one.checksum()); };
  job.ranks_agree = over_learners(sum, MPI_MIN) == over_learners(sum, MPI_MAX);
  for (std::size_t e = 0; e < own.history.size(); ++e) {
    const double seconds = over_learners([e](const learner& one) { return one.history[e].seconds; }, MPI_MAX);
    const double accuracy = my_rank() == 0 ? given.accuracy(own.history[e].weights, chosen) : 0; // only rank 0 reports
    job.history.push_back({static_cast<unsigned>(e), seconds, accuracy});
  }
  return job;
}

/// Trains with one participation on all ranks of MPI. Collective.
inline training train(spar::mpi& world, const participation& who, problem& given, const options& chosen,
                      std::uint64_t seed) {
  learner own(given, chosen, my_rank(), number_of_ranks(), seed);
  const spar::eager_sgd_options options{.rounds = {.tau = chosen.tau}, .period = chosen.average * own.steps_an_epoch()};
  const std::unique_ptr<optimizer> by = optimizer_of(who, world, own.weights.size(), options);
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  own.keep(0);
  for (std::size_t s = 0; s < own.steps(); ++s) {
    const double begin = MPI_Wtime();
    sleep_until(begin + own.compute(s), *by, chosen.nap);
    own.account(by->step(own.weights, own.gradient, own.rate(s)));
    if ((s + 1) % own.steps_an_epoch() == 0 && s + 1 < own.steps()) own.keep(MPI_Wtime() - start);
  }
  own.account(by->finish(own.weights));
  own.keep(MPI_Wtime() - start);
  return measured(own, given, chosen, [&](auto of, MPI_Op op) { return over_ranks(of(own), op); });
}

/// One simulated rank. `spar::eager_sgd` blocks, so the step of eager-SGD is written out here: the partial allreduce
/// averages the gradients, and coroutines wait for it.
template <spar::participation Who>
spar::task<void> train_simulated(spar::sim& net, learner& own, const Who& who, std::uint64_t tau) {
  const std::span<float> weights(own.weights), gradient(own.gradient);
  auto reduce = spar::partial_allreduce<float>(net, weights.size(), who, spar::recursive_doubling{}, spar::average{},
                                               {.tau = tau});
  const auto descend = [&] {
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= gradient[i];
  };
  own.keep(0);
  for (std::size_t s = 0; s < own.steps(); ++s) {
    const double seconds = own.compute(s), rate = own.rate(s);
    co_await net.sleep(seconds);
    for (float& g : gradient) g *= static_cast<float>(rate);
    auto call = reduce.start(gradient);
    const spar::participants by = co_await std::move(call);
    own.account(by);
    descend();
    if (own.averages(s + 1)) {
      auto same = spar::start_allreduce(net, weights, spar::sparcml{}, spar::average{});
      co_await std::move(same);
    }
    if ((s + 1) % own.steps_an_epoch() == 0 && s + 1 < own.steps()) own.keep(net.now());
  }
  auto rest = reduce.start_drain(gradient);
  const spar::participants by = co_await std::move(rest);
  own.account(by);
  descend();
  own.keep(net.now());
}

/// Trains with one participation on simulated ranks.
inline training simulate(const participation& who, problem& given, const options& chosen, std::uint64_t seed) {
  std::vector<learner> ranks;
  for (unsigned r = 0; r < chosen.simulate; ++r) ranks.emplace_back(given, chosen, r, chosen.simulate, seed);
  spar::simulator machine(static_cast<spar::rank_t>(chosen.simulate));
  std::visit(
      [&](const auto& by) {
        machine.run([&](spar::sim& net) {
          return train_simulated(net, ranks[static_cast<std::size_t>(net.rank())], by, chosen.tau);
        });
      },
      who);
  return measured(ranks[0], given, chosen, [&](auto of, MPI_Op op) {
    double all = of(ranks[0]);
    for (std::size_t r = 1; r < ranks.size(); ++r) {
      const double x = of(ranks[r]);
      all = op == MPI_SUM ? all + x : op == MPI_MAX ? std::max(all, x) : std::min(all, x);
    }
    return all;
  });
}

} // namespace sequences
