// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Checks the names of systems.
#include "system_names.hpp"

#include "compressed_name.hpp"
#include "partial_name.hpp"
#include "units.hpp"

#include <algorithm>

namespace spar::perf {

bool is_word_of(std::string_view word, std::string_view text) {
  return (" " + std::string(text) + " ").find(" " + std::string(word) + " ") != std::string::npos;
}

void check_system(const std::string& system, const std::vector<std::string>& own) {
  const auto exists = [&](const std::string& name) {
    const bool is_own = std::find(own.begin(), own.end(), name) != own.end();
    return is_own || is_word_of(name, system_names) || parse_compressed(name);
  };
  const auto partial = parse_partial(system);
  if (partial ? exists(partial->inner) : system == "mpi" || exists(system)) return;
  std::string known(system_names);
  for (const std::string& name : own) known += " " + name;
  known += ", with a codec ALGORITHM+CODEC such as ring+qsgd:8";
  if (partial) {
    throw usage_error(system + ": there is no inner system '" + partial->inner + "'; there are: " + known +
                      " (--list explains them)");
  }
  throw usage_error("there is no system '" + system + "'; there are: " + known + ", mpi, and the partial systems " +
                    std::string(partial_names) + " (--list explains them)");
}

} // namespace spar::perf
