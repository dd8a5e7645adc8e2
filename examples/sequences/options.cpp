// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Parses the command line.
#include "options.hpp"

#include "../command_line.hpp"
#include "../eager.hpp"
#include "../output.hpp"
#include "../ranks.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <climits>
#include <stdexcept>
#include <string>

namespace sequences {

using namespace examples;

int parse(int argc, char** argv, options& chosen) {
  CLI::App app("Trains an LSTM on sequences of different lengths by eager-SGD: ranks are late by the lengths alone.",
               "sequences");
  app.option_defaults()->always_capture_default();
  std::string frame = "20us", delay = "0s", nap = "300us";
  app.add_option("--participation", chosen.participation,
                 "participations to compare, separated by commas: everyone, solo, majority, quorum:Q")
      ->delimiter(',');
  app.add_option("--frame", frame,
                 "duration of a frame: a step takes as long as its frames, and the rank sleeps after its computation");
  app.add_option("--imbalance", chosen.imbalance, imbalance_help);
  app.add_option("--delay", delay, delay_help)->needs("--imbalance");
  app.add_option("--average", chosen.average, "epochs after which the ranks average their weights; 0: never");
  app.add_option("--simulate", chosen.simulate, "number of ranks to simulate, in virtual time; 0: trains over MPI")
      ->check(CLI::Range(0, 4096));
  app.add_option("--nap", nap, "how long a rank sleeps between two checks for rounds of other ranks");
  app.add_option("--epochs", chosen.epochs, "passes over the training sequences")->check(CLI::Range(1, 1000));
  app.add_option("--batch", chosen.batch, "sequences per rank and step")->check(CLI::Range(1, 10000));
  app.add_option("--rate", chosen.rate, "maximum learning rate")->check(finite_positive);
  app.add_option("--units", chosen.units, "units of the LSTM")->check(CLI::Range(1, 4096));
  app.add_option("--sequences", chosen.sequences, "number of training sequences")->check(CLI::Range(1, INT_MAX));
  app.add_option("--validation", chosen.validation, "number of validation sequences, for the accuracy")
      ->check(CLI::Range(1, INT_MAX));
  app.add_option("--median", chosen.median, "median of the lengths, in frames")
      ->check(finite_number & CLI::Range(29.0, 1776.0));
  app.add_option("--spread", chosen.spread, "deviation of the logarithms of the lengths; 0: equal lengths")
      ->check(finite_number & CLI::Range(0.0, 2.0));
  app.add_option("--tau", chosen.tau, "number of rounds that may run ahead of a rank")->check(CLI::Range(0, INT_MAX));
  app.add_option("--seeds", chosen.seeds, "trainings per participation, with different initial weights and batches")
      ->check(CLI::Range(1, 1000));
  app.add_option("--seed", chosen.seed, "seed of the first training, and of the sequences")
      ->check(CLI::Range(1, INT_MAX));
  app.add_option("--json", chosen.json, "also write the results to this file");
  if (const int status = examples::parse(app, argc, argv); status >= 0) return status;
  const bool good = on_all_ranks([&] {
    const unsigned ranks = chosen.simulate > 0 ? chosen.simulate : number_of_ranks();
    if (chosen.simulate > 0 && number_of_ranks() > 1) {
      throw std::runtime_error(
          fmt::format("--simulate needs one process, which simulates all ranks; there are {}", number_of_ranks()));
    }
    chosen.frame = seconds_of("--frame", frame);
    chosen.late = delays_of(chosen.imbalance, delay, ranks);
    chosen.nap = seconds_of("--nap", nap);
    for (const std::string& name : chosen.participation) (void)participation_of(name, static_cast<spar::rank_t>(ranks));
    if (chosen.sequences < std::size_t{chosen.batch} * ranks) {
      throw std::runtime_error(fmt::format("--sequences: a step of {} ranks needs {} sequences, got {}", ranks,
                                           std::size_t{chosen.batch} * ranks, chosen.sequences));
    }
    check_writable(chosen.json);
  });
  return good ? -1 : 2;
}

} // namespace sequences
