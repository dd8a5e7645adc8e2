// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Parses the command line.
#include "options.hpp"

#include "../command_line.hpp"
#include "../eager.hpp"
#include "../imbalance.hpp"
#include "../late.hpp"
#include "../output.hpp"
#include "../ranks.hpp"

#include <CLI/CLI.hpp>

#include <climits>
#include <string>

namespace hyperplane {

using namespace examples;

int parse(int argc, char** argv, options& chosen) {
  CLI::App app("Fits a hyperplane to points by eager-SGD, while ranks are late in each step.", "hyperplane");
  app.option_defaults()->always_capture_default();
  std::string step = "32ms", delay = "20ms", nap = "300us";
  app.add_option("--participation", chosen.participation,
                 "participations to compare, separated by commas: everyone, solo, majority, quorum:Q")
      ->delimiter(',');
  app.add_option("--step", step, "duration of a step; the rank sleeps after its computation");
  app.add_option("--imbalance", chosen.imbalance, imbalance_help);
  app.add_option("--delay", delay, delay_help);
  app.add_option("--nap", nap, "how long a rank sleeps between two checks for rounds of other ranks");
  app.add_option("--steps", chosen.steps, "number of steps of each rank")->check(CLI::Range(1, 1000000));
  app.add_option("--batch", chosen.batch, "points per rank and step")->check(CLI::Range(1, 10000));
  app.add_option("--rate", chosen.rate, "learning rate in the first half")->check(finite_positive);
  app.add_option("--dimension", chosen.dimension, "dimension of the points")->check(CLI::Range(1, 1 << 24));
  app.add_option("--points", chosen.points, "number of training points")->check(CLI::Range(1, INT_MAX));
  app.add_option("--validation", chosen.validation, "number of validation points, for the loss")
      ->check(CLI::Range(1, INT_MAX));
  app.add_option("--tau", chosen.tau, "number of rounds that may run ahead of a rank")->check(CLI::Range(0, INT_MAX));
  app.add_option("--seed", chosen.seed, "seed of points and delays")->check(CLI::Range(1, INT_MAX));
  app.add_option("--json", chosen.json, "also write the results to this file");
  if (const int status = examples::parse(app, argc, argv); status >= 0) return status;
  const bool good = on_all_ranks([&] {
    if (chosen.batch > chosen.points)
      throw std::runtime_error(
          fmt::format("a batch of {} points is larger than all {} training points", chosen.batch, chosen.points));
    chosen.step = seconds_of("--step", step);
    chosen.late = delays_of(chosen.imbalance, delay, number_of_ranks());
    chosen.nap = seconds_of("--nap", nap);
    for (const std::string& name : chosen.participation) {
      (void)participation_of(name, static_cast<spar::rank_t>(number_of_ranks()));
    }
    check_writable(chosen.json);
  });
  return good ? -1 : 2;
}

} // namespace hyperplane
