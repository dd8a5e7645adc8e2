// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The machine on which a measurement ran, and whether it was quiet.
#pragma once

#include <string>
#include <vector>

namespace spar::perf {

/// Describes this machine. Without Linux's /proc, the name of the processor is empty, and load and clock are 0.
struct machine {
  std::string processor; ///< name of the processor
  int cores = 0;         ///< number of processors that the operating system may use
  std::string system;    ///< name and release of the operating system
  std::string compiler;  ///< of this program
  double load = 0;       ///< mean number of running processes during the last minute
  double megahertz = 0;  ///< the highest current clock frequency of any processor
};

machine this_machine();

/// One sentence for each reason to distrust the times: a load average of more than half the cores at the start, or a
/// clock frequency that changed by more than 5 %.
std::vector<std::string> disturbances(const machine& at_start, const machine& at_end);

} // namespace spar::perf
