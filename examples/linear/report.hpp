// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Prints a line per epoch and the table at the end, and writes the same results as JSON.
#pragma once

#include "../output.hpp"
#include "../ranks.hpp"
#include "model.hpp"
#include "options.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace linear {

/// The state of a training after an epoch; the times are those of the epoch, of the slowest rank.
struct progress {
  double loss, accuracy, seconds;
  durations parts;
};

/// The measurements of one system.
struct training {
  std::string name;
  std::vector<progress> epochs;
  std::vector<double> losses; // mean loss of each batch of SGD, before its step
  std::size_t steps = 0;      // of an epoch
  double bytes_a_step = 0;    // sent by the rank that sends most
  bool ranks_agree = true;
  std::uint32_t checksum = 0; // of the weights
};

inline void print_epoch(const training& job, const options& chosen) {
  if (examples::my_rank() > 0) return;
  const progress& now = job.epochs.back();
  fmt::print("{:22} epoch {} of {}: loss {:.6f}, {:.2f} % correct, {:.2f} s, {:.3f} s in communication\n", job.name,
             job.epochs.size(), chosen.epochs, now.loss, 100 * now.accuracy, now.seconds, now.parts.communicating);
  std::fflush(stdout);
}

/// The results of one system, in means over the epochs.
inline nlohmann::json row_of(const training& job, const nlohmann::json& setting) {
  nlohmann::json row = setting;
  const auto epochs = static_cast<double>(job.epochs.size());
  progress mean{};
  for (const progress& one : job.epochs) {
    mean.seconds += one.seconds / epochs;
    mean.parts.computing += one.parts.computing / epochs;
    mean.parts.waiting += one.parts.waiting / epochs;
    mean.parts.communicating += one.parts.communicating / epochs;
    row["history"].push_back({{"loss", one.loss},
                              {"accuracy", one.accuracy},
                              {"seconds", one.seconds},
                              {"communicating_seconds", one.parts.communicating}});
  }
  row["system"] = job.name;
  row["steps"] = job.steps;
  row["epoch_seconds"] = mean.seconds;
  row["computing_seconds"] = mean.parts.computing;
  row["waiting_seconds"] = mean.parts.waiting;
  row["communicating_seconds"] = mean.parts.communicating;
  row["bytes_per_step"] = job.bytes_a_step;
  row["loss"] = job.epochs.back().loss;
  row["accuracy"] = job.epochs.back().accuracy;
  row["weights_checksum"] = job.checksum;
  row["ranks_agree"] = job.ranks_agree;
  if (!job.losses.empty()) row["batch_losses"] = job.losses;
  return row;
}

inline void report(const nlohmann::json& rows, const options& chosen) {
  fmt::print("\n{:22}{:>8}{:>10}{:>11}{:>10}{:>10}{:>14}{:>12}{:>10}{:>10}\n", "", "steps", "s / epoch", "computing",
             "waiting", "exchange", "ms a exchange", "MB / step", "loss", "correct");
  for (const auto& row : rows) {
    const auto number = [&](const char* key) { return row[key].get<double>(); };
    fmt::print("{:22}{:>8}{:>10.3f}{:>11.3f}{:>10.3f}{:>10.3f}{:>14.3f}{:>12.6f}{:>10.6f}{:>8.2f} %\n",
               row["system"].get<std::string>(), number("steps"), number("epoch_seconds"), number("computing_seconds"),
               number("waiting_seconds"), number("communicating_seconds"),
               1000 * number("communicating_seconds") / number("steps"), number("bytes_per_step") / 1e6, number("loss"),
               100 * number("accuracy"));
  }
  examples::write_json(chosen.json, rows);
}

} // namespace linear
