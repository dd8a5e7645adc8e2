// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The command-line options.
#pragma once

#include "../imbalance.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hyperplane {

struct options {
  std::vector<std::string> participation = {"everyone", "solo"};
  std::string json;
  double step = 0, nap = 0; // seconds
  std::string imbalance = "random:1";
  examples::delays late;
  unsigned steps = 768, batch = 32;
  std::size_t dimension = 8192, points = 32768, validation = 1024;
  std::uint64_t seed = 1, tau = 64; // see spar::partial_options
  float rate = 0.02F;
};

/// Parses the command line into `chosen`. Returns the exit status if the program must end, otherwise -1.
int parse(int argc, char** argv, options& chosen);

} // namespace hyperplane
