// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Parses the command line.
#include "options.hpp"

#include "../command_line.hpp"
#include "../output.hpp"
#include "../ranks.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <stdexcept>
#include <string>
#include <vector>

namespace linear {

using namespace examples;

int parse(int argc, char** argv, options& chosen) {
  CLI::App app("Trains a linear classifier with sparse gradients, or by coordinate descent, with MPI and with spar.",
               "linear");
  app.option_defaults()->always_capture_default();
  app.add_option("--method", chosen.method, "SGD, or stochastic coordinate descent")
      ->check(CLI::IsMember({"sgd", "scd"}));
  app.add_option("--model", chosen.model, "logistic regression, or a linear support vector machine")
      ->check(CLI::IsMember({"logistic", "svm"}));
  app.add_option("--set", chosen.set, "data set to make")->check(CLI::IsMember({"url", "webspam"}));
  app.add_option("--scale", chosen.scale, "share of the samples of the data set to make")
      ->check(finite_positive & CLI::Range(0.0, 1.0));
  app.add_option("--data", chosen.data, "file of LIBSVM, in place of --set")->excludes("--set")->excludes("--scale");
  app.add_option("--features", chosen.features, "features of the file; 0: the largest index in the file")
      ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{1} << 32))
      ->needs("--data");
  app.add_option("--systems", chosen.systems,
                 "separated by commas: mpi (dense), and for sgd sparcml, split_allgather, split_allgather+coded, "
                 "rec_doubling; for scd allgather (default: mpi, and split_allgather or allgather)")
      ->delimiter(',');
  app.add_option("--epochs", chosen.epochs, "passes over the samples, or over the coordinates")
      ->check(CLI::Range(1, 1000));
  app.add_option("--steps", chosen.steps, "maximum number of steps of an epoch; 0: a whole pass")
      ->check(CLI::Range(0, INT_MAX));
  app.add_option("--batch", chosen.batch, "samples per rank and step of SGD")->check(CLI::Range(1, 1000000));
  app.add_option("--coordinates", chosen.coordinates, "coordinates per rank and step of coordinate descent")
      ->check(CLI::Range(1, 1000000));
  app.add_option("--rate", chosen.rate, "learning rate of SGD")->check(finite_positive);
  app.add_option("--seed", chosen.seed, "of the data set and of the coordinates")->check(CLI::Range(0, INT_MAX));
  app.add_option("--json", chosen.json, "also write the results to this file");
  if (const int status = examples::parse(app, argc, argv); status >= 0) return status;
  const bool scd = chosen.method == "scd";
  if (chosen.systems.empty()) chosen.systems = {"mpi", scd ? "allgather" : "split_allgather"};
  const bool good = on_all_ranks([&] {
    if (scd && chosen.model != "logistic")
      throw std::runtime_error("--method scd needs --model logistic: the loss of an SVM has no second derivative");
    const std::vector<std::string> known =
        scd ? std::vector<std::string>{"mpi", "allgather"}
            : std::vector<std::string>{"mpi", "sparcml", "split_allgather", "split_allgather+coded", "rec_doubling"};
    for (const std::string& name : chosen.systems) {
      if (std::find(known.begin(), known.end(), name) == known.end())
        throw std::runtime_error(
            fmt::format("--method {} has no system '{}'; there are: {}", chosen.method, name, fmt::join(known, ", ")));
    }
    check_writable(chosen.json);
  });
  return good ? -1 : 2;
}

} // namespace linear
