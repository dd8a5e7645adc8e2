// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The file of --json, which rank 0 writes.
#pragma once

#include "ranks.hpp"

#include <fmt/format.h>

#include <fstream>
#include <stdexcept>
#include <string>

namespace examples {

/// Throws std::runtime_error on rank 0 if it cannot write to the file; an empty name is no file.
inline void check_writable(const std::string& file) {
  if (my_rank() == 0 && !file.empty() && !std::ofstream(file))
    throw std::runtime_error(fmt::format("{} cannot be written", file));
}

/// Writes the JSON value to the file, unless the name is empty. Throws std::runtime_error if this fails, for example
/// because the disk is full.
template <class Json>
void write_json(const std::string& file, const Json& results) {
  if (!file.empty() && !(std::ofstream(file) << results.dump(2) << std::endl))
    throw std::runtime_error(fmt::format("{} cannot be written", file));
}

} // namespace examples
