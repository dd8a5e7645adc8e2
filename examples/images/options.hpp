// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The command-line options.
#pragma once

#include "../imbalance.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace images {

struct options {
  std::vector<std::string> systems = {"dense", "mpi", "topka", "sparcml_q4", "gtopk", "ok_topk", "ok_topk@0.02"};
  std::string data = "/usr/share/datasets/fashion-mnist";
  std::string json, gradients;
  unsigned seeds = 1, epochs = 6, tests = 1, batch = 32;
  std::size_t limit = 60000;
  float rate = 0.4F;
  std::vector<std::size_t> neurons = {256, 128};
  std::size_t part = 65536;
  double step = 0; // seconds
  examples::delays late;
};

/// Parses the command line into `chosen`. Returns the exit status if the program must end, otherwise -1.
int parse(int argc, char** argv, options& chosen);

} // namespace images
