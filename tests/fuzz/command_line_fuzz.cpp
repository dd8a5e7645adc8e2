// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Parses arbitrary text as the command line of spar_perf, one argument per line: all accepted numbers must be in range.
#include "../../tools/spar_perf/options.hpp"
#include "../../tools/spar_perf/units.hpp"
#include "fuzz/fuzz.hpp"

#include <cmath>
#include <sstream>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::vector<std::string> words{"spar_perf"};
  std::istringstream text(std::string(reinterpret_cast<const char*>(data), size));
  for (std::string line; std::getline(text, line, '\n');)
    words.emplace_back(line.c_str()); // an argument ends at its first zero byte
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  try {
    const spar::perf::options o =
        spar::perf::parse_options(static_cast<int>(arguments.size()), arguments.data(), "sim");
    fuzz::demand(o.count >= 1 && o.count <= std::uint64_t{1} << 53, "the count is out of range");
    fuzz::demand(o.ranks >= 0 && o.iterations >= 1 && o.warmup >= 0 && o.ranks_per_host >= 1,
                 "a number is out of range");
    fuzz::demand(o.epsilon >= 0 && o.epsilon <= 1 && o.tau >= 1 && o.tau_prime >= 1,
                 "an option of the algorithms is out of range");
    for (const double x : {o.latency, o.bandwidth, o.compute, o.jitter})
      fuzz::demand(std::isfinite(x) && x >= 0, "a time or rate is negative or not finite");
    fuzz::demand(o.bandwidth > 0 && !o.systems.empty(), "there is nothing to measure");
    for (const double density : o.densities) {
      const spar::perf::workload w = spar::perf::workload_of(o, density, std::max(o.ranks, 1));
      fuzz::demand(density >= 0 && density <= 1 && w.k <= w.n, "a workload has more entries than indices");
    }
  } catch (const spar::perf::early_end&) {
  } catch (const spar::perf::usage_error&) {
    fuzz::refused = true;
  }
  return 0;
}
