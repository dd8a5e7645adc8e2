// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Parses a command line that all ranks have.
#pragma once

#include "ranks.hpp"

#include <CLI/CLI.hpp>

namespace examples {

/// Returns -1 if the command line is valid, and otherwise the exit status with which the program must end: 0 after
/// --help, 2 after an error. Rank 0 prints the help or the error.
inline int parse(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (my_rank() == 0) app.exit(error);
    return error.get_exit_code() == 0 ? 0 : 2;
  }
  return -1;
}

} // namespace examples
