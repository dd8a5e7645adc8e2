// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The command-line options.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace plain_mpi {

struct options {
  std::string data = "/usr/share/datasets/fashion-mnist", json;
  std::size_t epochs = 3, batch = 32, images = 60000, tested = 10000;
  std::uint64_t seed = 1;
  float rate = 0.1F;
};

/// Parses the command line into `chosen`. Returns the exit status if the program must end, otherwise -1.
int parse(int argc, char** argv, options& chosen);

} // namespace plain_mpi
