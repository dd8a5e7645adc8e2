// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Parses the command line.
#include "options.hpp"

#include <CLI/CLI.hpp>

namespace plain_mpi {

int parse(int argc, char** argv, options& chosen) {
  CLI::App app("Trains a classifier of images on all ranks; MPI_Allreduce sums the gradients.");
  app.add_option("--data", chosen.data, "directory with the images");
  app.add_option("--json", chosen.json, "file for the accuracy and the seconds after each epoch");
  app.add_option("--epochs", chosen.epochs)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--batch", chosen.batch, "images per rank and step")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--images", chosen.images, "maximum number of training images")->capture_default_str();
  app.add_option("--test-images", chosen.tested, "maximum number of test images")->capture_default_str();
  app.add_option("--seed", chosen.seed)->capture_default_str();
  app.add_option("--rate", chosen.rate, "learning rate")->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  return -1;
}

} // namespace plain_mpi
