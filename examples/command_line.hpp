// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Parses a command line that all ranks have.
#pragma once

#include "ranks.hpp"

#include <CLI/CLI.hpp>

#include <cmath>
#include <string>

namespace examples {

/// Accepts finite numbers. CLI::Range alone accepts NaN.
inline const CLI::Validator finite_number{[](const std::string& text) {
                                            double number = 0;
                                            const bool valid =
                                                CLI::detail::lexical_cast(text, number) && std::isfinite(number);
                                            return valid ? std::string() : "'" + text + "' is not a finite number";
                                          },
                                          "NUMBER"};

/// Accepts finite numbers above 0. CLI::PositiveNumber alone accepts NaN.
inline const CLI::Validator finite_positive{
    [](const std::string& text) {
      double number = 0;
      const bool valid = CLI::detail::lexical_cast(text, number) && number > 0 && std::isfinite(number);
      return valid ? std::string() : "'" + text + "' is not a finite number above 0";
    },
    "POSITIVE"};

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
