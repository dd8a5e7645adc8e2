// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Prints a line per measurement of the accuracy and the table at the end, and writes the same results as JSON.
#pragma once

#include "../output.hpp"
#include "options.hpp"
#include "training.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

namespace images {

/// The epochs that have passed when the accuracy has been measured `tests` times.
inline double epochs_of(std::size_t tests, const options& chosen) {
  return static_cast<double>(tests) / static_cast<double>(chosen.tests);
}

inline void print_test(const training& job, const options& chosen) {
  if (my_rank() > 0) return;
  fmt::print("seed {}, epoch {:.4g} of {}, {:20} {:.2f} % of the test images correct\n", job.seed,
             epochs_of(job.history.size(), chosen), chosen.epochs, job.system.name + ":",
             100 * job.history.back().accuracy);
  std::fflush(stdout);
}

/// One row of the results: the trainings of one system, one per seed.
inline nlohmann::json row_of(const std::vector<const training*>& runs, const options& chosen) {
  const training& first = *runs[0];
  const auto n = static_cast<double>(runs.size());
  nlohmann::json row = {{"system", first.system.name}, {"density", first.system.density},
                        {"ranks", number_of_ranks()},  {"parameters", first.gradient.size()},
                        {"epochs", chosen.epochs},     {"seeds", runs.size()},
                        {"steps", first.steps}};
  double accuracy = 0, lowest = 1, highest = 0, bytes = 0, words = 0, seconds = 0, xi = 0, fresh = 0;
  std::uint64_t stale = 0;
  tally selected, summed; // over all seeds
  bool ranks_agree = true;
  for (const training* job : runs) {
    const auto steps = static_cast<double>(job->steps);
    accuracy += job->history.back().accuracy / n;
    lowest = std::min(lowest, job->history.back().accuracy);
    highest = std::max(highest, job->history.back().accuracy);
    bytes += job->bytes / steps / n;
    words += job->words / steps / n;
    seconds += job->seconds / steps / n;
    for (const progress& at : job->history) xi = std::max(xi, at.xi_max);
    fresh += job->fresh / steps / n;
    stale = std::max(stale, job->stale);
    const auto join = [](tally& all, const tally& one) {
      all.most = std::max(all.most, one.most);
      all.sum += one.sum;
      all.distance += one.distance;
    };
    join(selected, job->selected);
    join(summed, job->summed);
    ranks_agree = ranks_agree && job->ranks_agree;
  }
  row["accuracy_mean"] = accuracy;
  row["accuracy_min"] = lowest;
  row["accuracy_max"] = highest;
  row["bytes_per_step"] = bytes;
  row["words_per_step"] = words;
  row["step_seconds"] = seconds;
  row["steps_per_second"] = 1 / seconds;
  row["fresh_mean"] = fresh;
  row["stale_max"] = stale;
  row["xi_max"] = xi;
  const bool selects = first.system.known->selects();
  const double steps = n * static_cast<double>(first.steps);
  const auto put = [&](const std::string& what, const tally& all) {
    row[what + "_max"] = selects ? all.most : first.gradient.size();
    row[what + "_mean"] = selects ? all.sum / steps : static_cast<double>(first.gradient.size());
    row[what + "_deviation"] = selects ? all.distance / steps / static_cast<double>(first.k) : 0.0;
  };
  put("selected", selected);
  put("summed", summed);
  row["ranks_agree"] = ranks_agree;
  phases by_phase;
  double hidden = 0, ideal = 0;
  for (const training* job : runs) {
    const auto [share, most] = job->took.hidden();
    hidden += share / n, ideal += most / n;
    by_phase.computing += job->took.computing, by_phase.selecting += job->took.selecting;
    by_phase.communicating += job->took.communicating, by_phase.in_turn += job->took.in_turn;
  }
  const double per_rank_and_step = 1 / (static_cast<double>(number_of_ranks()) * static_cast<double>(by_phase.in_turn));
  row["computing_seconds"] = over_ranks(by_phase.computing, MPI_SUM) * per_rank_and_step;
  row["selecting_seconds"] = over_ranks(by_phase.selecting, MPI_SUM) * per_rank_and_step;
  row["communicating_seconds"] = over_ranks(by_phase.communicating, MPI_SUM) * per_rank_and_step;
  row["hidden"] = hidden;
  row["hidden_ideal"] = ideal;
  for (std::size_t test = 0; test < first.history.size(); ++test) {
    nlohmann::json accuracies, times; // by seed
    double after = 0, sent = 0, took = 0, xi_mean = 0, xi_max = 0;
    for (const training* job : runs) {
      const progress& at = job->history[test];
      accuracies.push_back(at.accuracy), times.push_back(at.seconds);
      after += at.accuracy / n;
      sent += at.bytes / n;
      took += at.seconds / n;
      xi_mean += at.xi_mean / n;
      xi_max = std::max(xi_max, at.xi_max);
    }
    row["history"].push_back({{"epoch", epochs_of(test + 1, chosen)},
                              {"accuracy", after},
                              {"bytes", sent},
                              {"seconds", took},
                              {"xi_mean", xi_mean},
                              {"xi_max", xi_max},
                              {"accuracy_by_seed", accuracies},
                              {"seconds_by_seed", times}});
  }
  return row;
}

inline void report(const nlohmann::json& rows, const options& chosen) {
  fmt::print("\n{:20}{:>10}{:>10}{:>10}{:>14}{:>10}{:>8}{:>7}{:>8}{:>12}{:>12}\n", "", "accuracy", "lowest", "highest",
             "bytes / step", "ms / step", "fresh", "stale", "xi", "selected", "summed");
  for (const auto& row : rows) {
    const auto number = [&](const char* key) { return row[key].get<double>(); };
    fmt::print("{:20}{:>8.2f} %{:>8.2f} %{:>8.2f} %{:>14.0f}{:>10.2f}{:>8.2f}{:>7.0f}{:>8.2f}{:>12.0f}{:>12.0f}\n",
               row["system"].get<std::string>(), 100 * number("accuracy_mean"), 100 * number("accuracy_min"),
               100 * number("accuracy_max"), number("bytes_per_step"), 1000 * number("step_seconds"),
               number("fresh_mean"), number("stale_max"), number("xi_max"), number("selected_mean"),
               number("summed_mean"));
  }
  fmt::print("\n{:20}{:>14}{:>14}{:>16}{:>16}{:>10}{:>10}\n", "ms / step", "computing", "selecting", "communicating",
             "all (slowest)", "hidden", "ideal");
  for (const auto& row : rows) {
    const auto number = [&](const char* key) { return row[key].get<double>(); };
    fmt::print("{:20}{:>14.2f}{:>14.2f}{:>16.2f}{:>16.2f}{:>8.0f} %{:>8.0f} %\n", row["system"].get<std::string>(),
               1000 * number("computing_seconds"), 1000 * number("selecting_seconds"),
               1000 * number("communicating_seconds"), 1000 * number("step_seconds"), 100 * number("hidden"),
               100 * number("hidden_ideal"));
  }
  write_json(chosen.json, rows);
}

} // namespace images
