// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Parses the command line.
#include "options.hpp"

#include "../command_line.hpp"
#include "../imbalance.hpp"
#include "../output.hpp"
#include "../ranks.hpp"
#include "systems.hpp"

#include <CLI/CLI.hpp>

#include <climits>
#include <string>

namespace images {

using namespace examples;

int parse(int argc, char** argv, options& chosen) {
  CLI::App app("Trains a classifier of small images, and compares systems that sum the gradients.", "images");
  app.option_defaults()->always_capture_default();
  app.add_option("--systems", chosen.systems,
                 "systems, separated by commas: NAME, NAME@DENSITY (default density: 1 %), or quorum:RANKS")
      ->delimiter(',');
  app.add_option("--seeds", chosen.seeds, "trainings per system, with different initial weights and batches")
      ->check(CLI::Range(1, 1000));
  app.add_option("--epochs", chosen.epochs, "passes over the training images")->check(CLI::Range(1, 1000));
  app.add_option("--tests", chosen.tests, "how many times an epoch the accuracy is measured")
      ->check(CLI::Range(1, 1000));
  app.add_option("--batch", chosen.batch, "images per rank and step")->check(CLI::Range(1, 10000));
  app.add_option("--rate", chosen.rate, "maximum learning rate")->check(finite_positive);
  app.add_option("--limit", chosen.limit, "maximum number of training images, and of test images")
      ->check(CLI::Range(1, INT_MAX));
  app.add_option("--neurons", chosen.neurons, "neurons in the two hidden layers")
      ->delimiter(',')
      ->expected(2)
      ->check(CLI::Range(1, 10000));
  app.add_option("--part", chosen.part, "maximum number of values in a part of the gradient, for systems with +overlap")
      ->check(CLI::Range(1, INT_MAX));
  std::string imbalance = "none", step = "0s", delay = "0s";
  app.add_option("--imbalance", imbalance, imbalance_help);
  app.add_option("--step", step, "minimum duration of a step, in which a rank computes and then sleeps");
  app.add_option("--delay", delay, delay_help)->needs("--imbalance");
  app.add_option("--data", chosen.data, "directory with the files of Fashion-MNIST or MNIST");
  app.add_option("--json", chosen.json, "also write the results to this file");
  app.add_option("--save-gradients", chosen.gradients,
                 "also write the ranks' gradients in the first system's last step to this file, as binary32 numbers");
  if (const int status = examples::parse(app, argc, argv); status >= 0) return status;
  const bool good = on_all_ranks([&] {
    for (const std::string& name : chosen.systems) (void)system_of(name);
    chosen.step = seconds_of("--step", step);
    chosen.late = delays_of(imbalance, delay, number_of_ranks());
    check_writable(chosen.json);
    check_writable(chosen.gradients);
  });
  return good ? -1 : 2;
}

} // namespace images
