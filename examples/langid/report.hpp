// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the program prints at the end: the table, the words, and the same as JSON.
#pragma once

#include "corpus.hpp"
#include "model.hpp"
#include "options.hpp"
#include "ranks.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

namespace langid {

/// What a training ended with: the seconds of a mean epoch on the slowest rank, the bytes that a rank sends in a step.
struct outcome {
  classifier model;
  double accuracy = 0, seconds = 0, communication = 0, bytes = 0;
  std::size_t steps = 0;
};

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

inline void report(const outcome& mpi, const outcome& spar, const options& chosen) {
  const auto row = [](const char* what, double a, double b, const char* unit) {
    fmt::print("{:30}{:>12.2f} {:2}{:>14.2f} {:2}\n", what, a, unit, b, unit);
  };
  fmt::print("\n{:30}{:>15}{:>17}\n", "", "MPI_Allreduce", "spar::allreduce");
  row("test accuracy", 100 * mpi.accuracy, 100 * spar.accuracy, "%");
  row("time per epoch", mpi.seconds, spar.seconds, "s");
  row("  of it communication", mpi.communication, spar.communication, "s");
  row("bytes sent per rank and step", mpi.bytes / 1e6, spar.bytes / 1e6, "MB");
  if (!chosen.words.empty()) fmt::print("\n");
  for (const std::string& word : chosen.words) fmt::print("{}\n", best_three(spar.model, chosen, word));
  if (chosen.json.empty()) return;
  const nlohmann::json results = {{"accuracy_mpi", mpi.accuracy},
                                  {"accuracy_spar", spar.accuracy},
                                  {"communication_seconds_mpi", mpi.communication},
                                  {"communication_seconds_spar", spar.communication},
                                  {"bytes_mpi", mpi.bytes},
                                  {"bytes_spar", spar.bytes},
                                  {"epoch_seconds_mpi", mpi.seconds},
                                  {"epoch_seconds_spar", spar.seconds},
                                  {"ranks", number_of_ranks()},
                                  {"parameters", spar.model.weights.size()},
                                  {"steps", spar.steps}};
  std::ofstream(chosen.json) << results.dump(2) << '\n';
}

} // namespace langid
