// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Prints the table at the end, and writes the same results as JSON.
#pragma once

#include "../output.hpp"
#include "options.hpp"
#include "training.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <span>
#include <string>

namespace sequences {

/// The results of the trainings with one participation, one for each seed: means over the seeds unless said otherwise.
inline nlohmann::json row_of(const std::string& name, std::span<const training> jobs, const options& chosen) {
  const auto mean = [&](auto of) {
    double sum = 0;
    for (const training& job : jobs) sum += of(job);
    return sum / static_cast<double>(jobs.size());
  };
  const auto accuracy = [](const training& job) { return job.history.back().accuracy; };
  const auto [worst, best] = std::minmax_element(
      jobs.begin(), jobs.end(), [&](const training& a, const training& b) { return accuracy(a) < accuracy(b); });
  const double seconds = mean([](const training& job) { return job.history.back().seconds; });
  const auto steps = static_cast<double>(jobs[0].steps);
  nlohmann::json row = {{"participation", name},
                        {"ranks", chosen.simulate > 0 ? chosen.simulate : number_of_ranks()},
                        {"simulated", chosen.simulate > 0},
                        {"frame", chosen.frame},
                        {"imbalance", chosen.imbalance},
                        {"delay", chosen.late.longest},
                        {"tau", chosen.tau},
                        {"average", chosen.average},
                        {"epochs", chosen.epochs},
                        {"steps", jobs[0].steps},
                        {"batch", chosen.batch},
                        {"seeds", chosen.seeds},
                        {"median", chosen.median},
                        {"spread", chosen.spread},
                        {"seconds", seconds},
                        {"steps_per_second", steps / seconds},
                        {"accuracy_mean", mean(accuracy)},
                        {"accuracy_min", accuracy(*worst)},
                        {"accuracy_max", accuracy(*best)},
                        {"fresh_mean", mean([](const training& job) { return job.fresh; })},
                        {"frames_min", jobs[0].least},
                        {"frames_max", jobs[0].most},
                        {"frames_mean", jobs[0].mean},
                        {"frames_deviation", jobs[0].deviation}};
  std::uint64_t stale = 0;
  bool agree = true;
  for (const training& job : jobs) stale = std::max(stale, job.stale), agree = agree && job.ranks_agree;
  row["stale_max"] = stale;
  row["ranks_agree"] = agree;
  for (std::size_t e = 0; e < jobs[0].history.size(); ++e) {
    row["history"].push_back({{"epoch", e},
                              {"seconds", mean([e](const training& job) { return job.history[e].seconds; })},
                              {"accuracy", mean([e](const training& job) { return job.history[e].accuracy; })}});
  }
  return row;
}

/// Prints the table; with --json also writes an array with one object per participation.
inline void report(const nlohmann::json& rows, const options& chosen) {
  double everyone = 0;
  for (const auto& row : rows) {
    if (row["participation"] == "everyone") everyone = row["steps_per_second"].get<double>();
  }
  fmt::print("{:12}{:>10}{:>13}{:>10}{:>8}{:>8}\n", "", "steps / s", "to everyone", "accuracy", "fresh", "stale");
  for (const auto& row : rows) {
    const auto number = [&](const char* key) { return row[key].get<double>(); };
    const double speed = number("steps_per_second");
    fmt::print("{:12}{:>10.3f}{:>13}{:>9.2f}%{:>8.2f}{:>8}\n", row["participation"].get<std::string>(), speed,
               everyone > 0 ? fmt::format("{:.3f}", speed / everyone) : "-", 100 * number("accuracy_mean"),
               number("fresh_mean"), row["stale_max"].get<std::uint64_t>());
  }
  write_json(chosen.json, rows);
}

} // namespace sequences
