// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Trains linear classifiers of large sparse data sets, as SparCML's MPI-OPT does (SC'19, sections 7 and 8.2): the
// gradients of SGD are sparse by nature, and coordinate descent changes few weights in a step. Compares dense MPI with
// sparse collectives.
#include "exchanges.hpp"
#include "libsvm.hpp"
#include "model.hpp"
#include "options.hpp"
#include "report.hpp"
#include "scd.hpp"
#include "sgd.hpp"
#include "synthetic.hpp"

#include "../ranks.hpp"

#include <spar/mpi.hpp>
#include <spar/spar.hpp>
#include <spar/storage/coded.hpp>

#include <fmt/format.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace linear;
using namespace examples;

namespace {

void meet() { MPI_Barrier(MPI_COMM_WORLD); }

/// The baseline of SGD: MPI sums the whole vector, including zeros.
durations dense_sum(gradient& step, std::span<float> weights) {
  const int n = spar::checked_cast<int>(weights.size());
  const durations took =
      timed(meet, [&] { MPI_Allreduce(MPI_IN_PLACE, step.dense.data(), n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); });
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] -= std::exchange(step.dense[i], 0.0F);
  std::fill(step.touched.begin(), step.touched.end(), 0);
  return took;
}

/// The baseline of coordinate descent: MPI gathers the blocks of all ranks, including zeros.
class dense_gather {
 public:
  explicit dense_gather(const spar::uniform_ownership& blocks) : values_(blocks.n) {
    for (spar::rank_t r = 0; r < blocks.blocks; ++r) {
      counts_.push_back(spar::checked_cast<int>(blocks[r].size()));
      begins_.push_back(spar::checked_cast<int>(blocks.begin(r)));
    }
  }
  durations operator()(const changes& mine, changes& all) {
    for (std::size_t c = 0; c < mine.indices.size(); ++c) values_[mine.indices[c]] = mine.values[c];
    const durations took = timed(meet, [&] {
      MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, values_.data(), counts_.data(), begins_.data(), MPI_FLOAT,
                     MPI_COMM_WORLD);
    });
    all = {};
    for (std::size_t i = 0; i < values_.size(); ++i) {
      if (values_[i] == 0) continue;
      all.indices.push_back(static_cast<std::uint32_t>(i));
      all.values.push_back(std::exchange(values_[i], 0.0F));
    }
    return took;
  }

 private:
  std::vector<float> values_;
  std::vector<int> counts_, begins_;
};

/// The samples of a rank, and what all ranks know of the whole set.
struct data_set {
  samples mine;
  std::uint64_t features = 0;
};

/// Reads or makes a shard for each rank; for coordinate descent, all samples on every rank. Returns whether all ranks
/// have succeeded. Collective.
bool load(data_set& all, const options& chosen) {
  const bool shared = chosen.method == "scd";
  const std::size_t shard = shared ? 0 : my_rank(), shards = shared ? 1 : number_of_ranks();
  if (chosen.data.empty()) {
    shape of = chosen.set == "url" ? url : webspam;
    of.samples = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(chosen.scale * static_cast<double>(of.samples)));
    all.features = of.features;
    return on_all_ranks([&] { all.mine = synthetic(of, chosen.seed).part(shard, shards); });
  }
  const std::uint64_t limit = chosen.features > 0 ? chosen.features : most_features;
  if (!on_all_ranks([&] { all.mine = read_libsvm(chosen.data, limit, shard, shards); })) return false;
  const auto& indices = all.mine.indices;
  const std::uint64_t least =
      indices.empty() ? 0 : *std::max_element(indices.begin(), indices.end()) + std::uint64_t{1};
  all.features = chosen.features > 0 ? chosen.features : static_cast<std::uint64_t>(over_ranks(least, MPI_MAX));
  const auto [lowest, highest] = std::minmax_element(all.mine.labels.begin(), all.mine.labels.end());
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const bool none = all.mine.size() == 0;
  const auto low = static_cast<float>(over_ranks(none ? infinity : static_cast<double>(*lowest), MPI_MIN));
  const auto high = static_cast<float>(over_ranks(none ? -infinity : static_cast<double>(*highest), MPI_MAX));
  return on_all_ranks([&] {
    if (!(low < high)) throw std::runtime_error(fmt::format("{} does not have samples of two labels", chosen.data));
    if (all.features == 0) throw std::runtime_error(fmt::format("{} has no features", chosen.data));
    for (float& label : all.mine.labels) {
      if (label != low && label != high) // reads again, to name the line of the third label
        (void)read_libsvm(chosen.data, limit, shard, shards, std::array{low, high});
      label = label == high ? 1.0F : -1.0F;
    }
  });
}

/// Calls `f` with the exchange of SGD of that name.
template <class F>
durations with_sum(const std::string& name, spar::mpi& world, F f) {
  const auto sparse = [&](auto algorithm) {
    return f(sparse_sum<spar::mpi, decltype(algorithm)>{world, algorithm, meet, {}, {}});
  };
  if (name == "sparcml") return sparse(spar::sparcml{});
  if (name == "split_allgather") return sparse(spar::split_allgather{});
  if (name == "split_allgather+coded")
    return sparse(spar::compose(spar::storage::coded<52>{}, spar::split_allgather{}));
  if (name == "rec_doubling") return sparse(spar::recursive_doubling{});
  return f(dense_sum);
}

/// A system in training.
struct run_state {
  training job;
  std::vector<float> weights;
  std::vector<double> scores; // of coordinate descent
  std::mt19937_64 random;
  double bytes = 0;

  run_state(const std::string& name, std::size_t steps, std::size_t features, std::size_t samples, std::uint64_t seed)
      : weights(features), scores(samples), random(seed) {
    job.name = name;
    job.steps = steps;
  }
};

/// Measures one epoch: `pass()` makes it and returns this rank's durations, `judge()` returns this rank's sums of
/// losses and of correct samples. Collective.
template <class Pass, class Judge>
void epoch(run_state& state, spar::mpi& world, double samples, Pass pass, Judge judge) {
  training& job = state.job;
  meet();
  const spar::statistics before = world.statistics();
  const double start = seconds_now();
  const durations mine = pass();
  const double seconds = seconds_now() - start;
  const spar::statistics after = world.statistics();
  state.bytes += static_cast<double>(after.bytes_sent + after.header_bytes_sent) -
                 static_cast<double>(before.bytes_sent + before.header_bytes_sent);
  const auto [loss, correct] = judge();
  job.epochs.push_back({over_ranks(loss, MPI_SUM) / samples,
                        over_ranks(correct, MPI_SUM) / samples,
                        over_ranks(seconds, MPI_MAX),
                        {over_ranks(mine.computing, MPI_MAX), over_ranks(mine.waiting, MPI_MAX),
                         over_ranks(mine.communicating, MPI_MAX)}});
  job.checksum = spar::crc32c(state.weights.data(), state.weights.size() * sizeof(float));
  job.ranks_agree = over_ranks(job.checksum, MPI_MIN) == over_ranks(job.checksum, MPI_MAX);
}

/// Trains with each system in turn. Returns the exit status.
int run(int argc, char** argv) {
  options chosen;
  if (const int status = parse(argc, argv, chosen); status >= 0) return status;
  data_set data;
  if (!load(data, chosen)) return 2;

  const std::size_t P = number_of_ranks(), n = data.features;
  const bool scd = chosen.method == "scd";
  const double total = scd ? static_cast<double>(data.mine.size()) : over_ranks(data.mine.size(), MPI_SUM);
  const double entries =
      scd ? static_cast<double>(data.mine.values.size()) : over_ranks(data.mine.values.size(), MPI_SUM);
  const auto in_steps = [](std::size_t count, std::size_t each) { return (count + each - 1) / each; };
  const auto most = static_cast<std::size_t>(over_ranks(data.mine.size(), MPI_MAX));
  const std::size_t pass = scd ? in_steps(n, chosen.coordinates * P) : in_steps(most, chosen.batch);
  const std::size_t steps = chosen.steps > 0 ? std::min(pass, chosen.steps) : pass;
  const spar::uniform_ownership blocks{n, static_cast<spar::rank_t>(P)};
  const spar::index_range block = blocks[static_cast<spar::rank_t>(my_rank())];
  const loss kind = chosen.model == "svm" ? loss::hinge : loss::logistic;

  spar::mpi world(MPI_COMM_WORLD);
  std::optional<columns> by_column;
  std::optional<gradient> step;
  std::vector<run_state> states;
  const bool fits = on_all_ranks([&] {
    if (n > INT_MAX && std::count(chosen.systems.begin(), chosen.systems.end(), "mpi") > 0)
      throw std::runtime_error(fmt::format("the system mpi needs at most {} features, got {}", INT_MAX, n));
    try {
      if (scd) by_column.emplace(data.mine, n);
      if (!scd) step.emplace(n);
      for (const std::string& name : chosen.systems)
        states.emplace_back(name, steps, n, scd ? data.mine.size() : 0, chosen.seed << 32 | my_rank());
    } catch (const std::bad_alloc&) {
      throw std::runtime_error(fmt::format("too little memory for {} features", n));
    }
  });
  if (!fits) return 2;
  const auto judge = [&](const auto& score_of) {
    double sum = 0, correct = 0;
    // Every rank has all samples of coordinate descent, and judges its part.
    const std::size_t first = scd ? data.mine.size() * my_rank() / P : 0;
    const std::size_t last = scd ? data.mine.size() * (my_rank() + 1) / P : data.mine.size();
    for (std::size_t i = first; i < last; ++i) {
      const double z = score_of(i);
      sum += loss_of(kind, data.mine.labels[i], z);
      correct += (z > 0) == (data.mine.labels[i] > 0) ? 1 : 0;
    }
    return std::pair(sum, correct);
  };

  // The systems train in turn, so that other programs on the machine disturb all alike.
  for (unsigned e = 0; e < chosen.epochs; ++e) {
    for (run_state& state : states) {
      const std::string& name = state.job.name;
      if (scd) {
        const scd_options its{chosen.coordinates, steps, block.begin, block.end, P};
        const auto descend = [&](auto exchange) {
          return scd_pass(*by_column, its, state.random, state.weights, state.scores, exchange);
        };
        epoch(
            state, world, total,
            [&] {
              return name == "mpi" ? descend(dense_gather(blocks)) : descend(sparse_gather<spar::mpi>{world, n, meet});
            },
            [&] { return judge([&](std::size_t i) { return state.scores[i]; }); });
      } else {
        const sgd_options its{kind, chosen.batch, steps, chosen.rate, P};
        std::vector<double> losses;
        epoch(
            state, world, total,
            [&] {
              return with_sum(name, world, [&](auto exchange) {
                return sgd_pass(data.mine, its, state.weights, *step, exchange, losses);
              });
            },
            [&] { return judge([&](std::size_t i) { return score(data.mine[i], state.weights); }); });
        for (std::size_t s = 0; s < steps; ++s) {
          const std::size_t end = std::max(data.mine.size(), s * chosen.batch);
          losses.push_back(static_cast<double>(std::min((s + 1) * chosen.batch, end) - s * chosen.batch));
        }
        MPI_Allreduce(MPI_IN_PLACE, losses.data(), static_cast<int>(losses.size()), MPI_DOUBLE, MPI_SUM,
                      MPI_COMM_WORLD);
        for (std::size_t s = 0; s < steps; ++s) losses[s] /= losses[steps + s];
        losses.resize(steps);
        state.job.losses.insert(state.job.losses.end(), losses.begin(), losses.end());
      }
      print_epoch(state.job, chosen);
    }
  }

  bool agree = true;
  nlohmann::json rows;
  const nlohmann::json setting = {{"method", chosen.method},
                                  {"model", chosen.model},
                                  {"set", chosen.data.empty() ? chosen.set : chosen.data},
                                  {"ranks", P},
                                  {"samples", total},
                                  {"features", n},
                                  {"nonzeros_per_sample", entries / total},
                                  {"epochs", chosen.epochs},
                                  {"steps_of_a_pass", pass}};
  for (run_state& state : states) {
    // MPI does not report its bytes. This is the minimum that a dense allreduce or allgather sends, on average over
    // ranks.
    const double least = (scd ? 1.0 : 2.0) * static_cast<double>(n) * sizeof(float) * static_cast<double>(P - 1) /
                         static_cast<double>(P);
    const double sent = over_ranks(state.bytes, MPI_MAX) / static_cast<double>(steps * chosen.epochs);
    state.job.bytes_a_step = state.job.name == "mpi" ? least : sent;
    agree = agree && state.job.ranks_agree;
    rows.push_back(row_of(state.job, setting));
  }
  if (my_rank() == 0) report(rows, chosen);
  if (!agree && my_rank() == 0) fmt::print(stderr, "linear: the weights differ between ranks\n");
  return agree ? 0 : 1;
}

} // namespace

int main(int argc, char** argv) { return run_over_mpi(argc, argv, run); }
