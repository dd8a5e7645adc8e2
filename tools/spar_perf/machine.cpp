// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reads the machine's description from /proc.
#include "machine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <fstream>
#include <thread>

#include <sys/utsname.h>

namespace spar::perf {

machine this_machine() {
  machine here;
  // Works for 20 ms first: an idle processor lowers its clock.
  const auto begin = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(20)) {
  }
  here.cores = static_cast<int>(std::thread::hardware_concurrency());
  utsname names{};
  if (uname(&names) == 0) here.system = fmt::format("{} {}", names.sysname, names.release);
#if defined(__clang__)
  here.compiler = "clang " __clang_version__;
#elif defined(__GNUC__)
  here.compiler = "gcc " __VERSION__;
#endif
  std::ifstream("/proc/loadavg") >> here.load;
  std::ifstream processors("/proc/cpuinfo");
  for (std::string line; std::getline(processors, line);) {
    const std::size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    if (line.starts_with("model name") && here.processor.empty()) here.processor = line.substr(colon + 2);
    if (line.starts_with("cpu MHz")) {
      double now = 0;
      std::from_chars(line.data() + colon + 2, line.data() + line.size(), now);
      here.megahertz = std::max(here.megahertz, now);
    }
  }
  return here;
}

std::vector<std::string> disturbances(const machine& at_start, const machine& at_end) {
  std::vector<std::string> found;
  if (at_start.load > 0.5 * at_start.cores) {
    found.push_back(fmt::format("the load average of the minute before the run was {:.1f} on {} cores: other programs, "
                                "or a build that has just ended, may disturb times",
                                at_start.load, at_start.cores));
  }
  const double before = at_start.megahertz, after = at_end.megahertz;
  if (before > 0 && after > 0 && std::abs(after - before) > 0.05 * before)
    found.push_back(fmt::format("the clock changed from {:.0f} to {:.0f} MHz", before, after));
  return found;
}

} // namespace spar::perf
