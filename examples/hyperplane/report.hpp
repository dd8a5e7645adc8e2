// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Prints the table at the end, and writes the same results as JSON.
#pragma once

#include "../output.hpp"
#include "options.hpp"
#include "training.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <string>

namespace hyperplane {

inline nlohmann::json row_of(const std::string& name, const training& job, const options& chosen) {
  nlohmann::json row = {{"participation", name},
                        {"ranks", number_of_ranks()},
                        {"step", chosen.step},
                        {"imbalance", chosen.imbalance},
                        {"delay", chosen.late.longest},
                        {"nap", chosen.nap},
                        {"steps", chosen.steps},
                        {"batch", chosen.batch},
                        {"dimension", chosen.dimension},
                        {"seconds", job.seconds},
                        {"steps_per_second", chosen.steps / job.seconds},
                        {"final_loss", job.history.back().loss},
                        {"fresh_mean", job.fresh},
                        {"stale_max", job.stale},
                        {"computing_seconds", job.computing},
                        {"calling_seconds", job.calling},
                        {"ranks_agree", job.ranks_agree}};
  for (const snapshot& s : job.history) {
    row["history"].push_back({{"step", s.step}, {"seconds", s.seconds}, {"loss", s.loss}});
  }
  return row;
}

/// Prints a line of the table. `everyone` is the number of steps per second with the participation everyone, or 0 if it
/// was not measured.
inline void print_row(const nlohmann::json& row, double everyone) {
  const auto number = [&](const char* key) { return row[key].get<double>(); };
  const double speed = number("steps_per_second");
  const std::string ratio = everyone > 0 ? fmt::format("{:.3f}", speed / everyone) : "-";
  fmt::print("{:12}{:>10.3f}{:>13}{:>10.4f}{:>8.2f}{:>8}{:>10.2f}{:>10.2f}\n", row["participation"].get<std::string>(),
             speed, ratio, number("final_loss"), number("fresh_mean"), row["stale_max"].get<std::uint64_t>(),
             1000 * number("computing_seconds"), 1000 * number("calling_seconds"));
}

/// Prints the table; with --json also writes one object per participation, in an array if there are several.
inline void report(const nlohmann::json& rows, const options& chosen) {
  double everyone = 0;
  for (const auto& row : rows) {
    if (row["participation"] == "everyone") everyone = row["steps_per_second"].get<double>();
  }
  fmt::print("{:12}{:>10}{:>13}{:>10}{:>8}{:>8}{:>10}{:>10}\n", "", "steps / s", "to everyone", "loss", "fresh",
             "stale", "ms busy", "ms a call");
  for (const auto& row : rows) print_row(row, everyone);
  write_json(chosen.json, rows.size() == 1 ? rows[0] : rows);
}

} // namespace hyperplane
