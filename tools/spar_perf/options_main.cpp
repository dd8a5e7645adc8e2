// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// spar_perf_options OWN[,OWN...] ARGUMENT...: checks the command line of a spar_perf with the systems OWN. scripts/perf
// runs this program before it compiles the systems, which takes minutes. Exit status 2 for a wrong option.
#include "options.hpp"
#include "units.hpp"

#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

int main(int argc, char** argv) {
  std::vector<std::string> own;
  std::istringstream names(argc > 1 ? argv[1] : "");
  for (std::string name; std::getline(names, name, ',');) own.push_back(name);
  try {
    spar::perf::parse_options(argc - 1, argv + 1, "mpi", own);
  } catch (const spar::perf::early_end& end) {
    std::fputs(end.text.c_str(), stdout);
    return end.status;
  } catch (const spar::perf::usage_error& e) {
    std::fprintf(stderr, "spar_perf: %s\n", e.what());
    return 2;
  }
}
