// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Compiles all systems for values of type float.
#include "typed_measurement.hpp"

namespace spar::perf {

template std::unique_ptr<measurement> measurement_for<float, std::uint32_t>(const measured_systems&);

std::vector<std::string> names_of_systems() {
  registry<float, std::uint32_t> all({}, 0, spar::tree::flat(1));
  register_systems(all);
  std::vector<std::string> names;
  for (const auto& s : all.entries()) names.push_back(s.name);
  return names;
}

} // namespace spar::perf
