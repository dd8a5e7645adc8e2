// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Any text as the command line of spar_perf, an argument a line: what is accepted are numbers that can be gone on with.
#include "../../tools/spar_perf/options.hpp"
#include "../../tools/spar_perf/units.hpp"
#include "fuzz/fuzz.hpp"

#include <cmath>
#include <sstream>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::string> words{"spar_perf"};
  std::istringstream text(std::string(reinterpret_cast<const char*>(data), size));
  for (std::string line; std::getline(text, line, '\n');) words.emplace_back(line.c_str()); // no zero in an argument
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  try {
    const perf::options o = perf::parse_options(static_cast<int>(arguments.size()), arguments.data(), "sim");
    fuzz::demand(o.count >= 1 && o.count <= std::uint64_t{1} << 53, "a count out of range");
    fuzz::demand(o.ranks >= 0 && o.iterations >= 1 && o.warmup >= 0 && o.ranks_per_host >= 1, "a number out of range");
    fuzz::demand(o.epsilon >= 0 && o.epsilon <= 1 && o.tau >= 1 && o.tau_prime >= 1, "an option that is none");
    for (const double x : {o.latency, o.bandwidth, o.compute, o.jitter})
      fuzz::demand(std::isfinite(x) && x >= 0, "a time or rate that is none");
    fuzz::demand(o.bandwidth > 0 && !o.systems.empty(), "nothing to measure");
    for (const double density : o.densities) {
      const perf::workload w = perf::workload_of(o, density, std::max(o.ranks, 1));
      fuzz::demand(density >= 0 && density <= 1 && w.k <= w.n, "more entries than there are indices");
    }
  } catch (const perf::early_end&) {
  } catch (const perf::usage_error&) {
    fuzz::refused = true;
  }
  return 0;
}
