// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Measures a composition beside spar's ring, with the installed library spar::perf.
#include <spar_perf/suite.hpp>

#include <iterator>

int main() {
  const char* arguments[] = {"consumer", "--systems", "ring,mine", "--count", "20K", "--density", "1", "--check"};
  spar::perf::suite systems;
  systems.add("mine", spar::compose(spar::recursive_doubling{}));
  return systems.run(static_cast<int>(std::size(arguments)), const_cast<char**>(arguments));
}
