// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Measures user-defined policies beside spar's systems; has all options of spar_perf.
#include "policies.hpp"

#include <spar_perf/suite.hpp>

int main(int argc, char** argv) {
  using spar::storage::coo, spar::storage::then;
  spar::perf::suite systems;
  systems.add("star", own::star{});
  systems.add("there_and_back", own::there_and_back{});
  systems.add("truncated", spar::compose(then<coo, own::truncated>{}, spar::dsar_split{}), 1.0 / 128);
  systems.add("at_least", spar::compose(own::at_least{.threshold = 1}, own::there_and_back{}));
  return systems.run(argc, argv);
}
