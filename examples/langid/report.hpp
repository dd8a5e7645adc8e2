// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Prints progress, the table and the classified words, and writes the results as JSON.
#pragma once

#include "../output.hpp"
#include "../ranks.hpp"
#include "corpus.hpp"
#include "model.hpp"
#include "options.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

namespace langid {

/// A model in training, and its measurements so far; seconds are those of the slowest rank.
struct training {
  training(const char* called, const options& chosen)
      : name(called), model{.languages = chosen.lists.size(), .bits = chosen.bits}, step(model) {}

  const char* name;
  classifier model;
  gradient step;
  unsigned epochs = 0;
  std::size_t steps = 0;
  double accuracy = 0, seconds = 0, communication = 0, bytes_a_step = 0;
};

inline void print_progress(const training& job, std::size_t step, std::size_t steps) {
  if (my_rank() > 0 || step % 10 > 0) return;
  fmt::print("\r{:4} epoch {}, step {} of {} ", job.name, job.epochs + 1, step, steps);
  std::fflush(stdout);
}

inline void print_epoch(const training& job, const options& chosen) {
  if (my_rank() > 0) return;
  fmt::print("{}{:4} epoch {} of {}: {:.2f} % of the test words correct after {:.1f} s, {:.2f} s in communication\n",
             chosen.progress ? "\r" : "", job.name, job.epochs, chosen.epochs, 100 * job.accuracy, job.seconds,
             job.communication);
  std::fflush(stdout);
}

/// The three most probable languages of a word, as text.
inline std::string best_three(const classifier& model, const options& chosen, const std::string& word) {
  const std::vector<float> p = model.probabilities(n_grams(normalised(word), model.bits));
  std::vector<std::size_t> order(p.size());
  std::iota(order.begin(), order.end(), 0u);
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return p[a] > p[b]; });
  order.resize(std::min<std::size_t>(3, order.size()));
  std::string line = fmt::format("{:20}", word);
  for (const std::size_t l : order) line += fmt::format("{:>5} {:5.1f} %", chosen.lists[l].language, 100 * p[l]);
  return line;
}

/// Prints the table and writes the JSON file. Seconds are means per epoch; bytes are per rank and step.
inline void report(const training& mpi, const training& spar, const options& chosen) {
  const auto print = [](const char* what, double a, double b, const char* unit) {
    fmt::print("{:30}{:>12.2f} {:2}{:>14.2f} {}\n", what, a, unit, b, unit);
  };
  const double epochs = chosen.epochs;
  fmt::print("\n{:30}{:>15}{:>17}\n", "", "MPI_Allreduce", "spar::allreduce");
  print("test accuracy", 100 * mpi.accuracy, 100 * spar.accuracy, "%");
  print("time per epoch", mpi.seconds / epochs, spar.seconds / epochs, "s");
  print("  in communication", mpi.communication / epochs, spar.communication / epochs, "s");
  print("bytes sent per rank and step", mpi.bytes_a_step / 1e6, spar.bytes_a_step / 1e6, "MB");
  if (!chosen.words.empty()) fmt::print("\n");
  for (const std::string& word : chosen.words) fmt::print("{}\n", best_three(spar.model, chosen, word));
  if (chosen.json.empty()) return;
  nlohmann::json results = {{"epochs", epochs}, {"parameters", spar.step.dense.size()}, {"ranks", number_of_ranks()}};
  for (const training* job : {&mpi, &spar}) {
    const std::string name = job == &mpi ? "_mpi" : "_spar";
    results["accuracy" + name] = job->accuracy;
    results["seconds" + name] = job->seconds / epochs;
    results["communication_seconds" + name] = job->communication / epochs;
    results["bytes" + name] = job->bytes_a_step;
  }
  write_json(chosen.json, results);
}

} // namespace langid
