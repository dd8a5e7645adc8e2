// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The command-line options.
#pragma once

#include "../imbalance.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sequences {

struct options {
  std::vector<std::string> participation = {"everyone", "solo", "majority"};
  std::string imbalance = "none", json;
  examples::delays late;
  double frame = 0, nap = 0; // seconds
  double median = 167, spread = 0.485;
  std::size_t sequences = 4096, validation = 1024, units = 8;
  unsigned seeds = 1, epochs = 8, batch = 8, average = 0, simulate = 0;
  std::uint64_t seed = 1, tau = 64; // see spar::partial_options
  float rate = 2;
};

/// Parses the command line into `chosen`. Returns the exit status if the program must end, otherwise -1.
int parse(int argc, char** argv, options& chosen);

} // namespace sequences
