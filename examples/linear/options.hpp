// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The command-line options.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace linear {

struct options {
  std::string method = "sgd", model = "logistic", set = "url", data, json;
  std::vector<std::string> systems;
  std::uint64_t features = 0, seed = 1; // 0 features: as many as the file has
  double scale = 0.01, rate = 10;
  unsigned epochs = 1;
  std::size_t batch = 1000, coordinates = 100, steps = 0; // 0 steps: a whole pass
};

/// Parses the command line into `chosen`. Returns the exit status if the program must end, otherwise -1.
int parse(int argc, char** argv, options& chosen);

} // namespace linear
