// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The command-line options.
#pragma once

#include "corpus.hpp"

#include <cstddef>
#include <string>
#include <vector>

#include <unistd.h>

namespace langid {

struct options {
  std::vector<word_list> lists = debian_lists;
  std::vector<std::string> words;
  std::string json;
  unsigned epochs = 2, batch = 128, bits = 20;
  std::size_t limit = 20000;
  double rate = 100;
  bool progress = isatty(STDERR_FILENO) != 0;
};

/// Parses the command line into `chosen`. Returns the exit status if the program must end, otherwise -1.
int parse(int argc, char** argv, options& chosen);

} // namespace langid
