// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The machine on which a measurement ran, and whether it was quiet.
#pragma once

#include <string>
#include <vector>

namespace perf {

/// Describes this machine, as far as Linux's /proc says; other systems leave texts empty and numbers 0.
struct machine {
  std::string processor; ///< name of the processor
  int cores = 0;         ///< number of processors that the operating system may use
  std::string system;    ///< name and release of the operating system
  std::string compiler;  ///< of this program
  double load = 0;       ///< mean number of running processes during the last minute
  double megahertz = 0;  ///< the highest current clock frequency of any processor
};

machine this_machine();

/// One sentence for each reason to distrust the times: other programs were running at the start, or the clock frequency
/// changed by more than 5 %.
std::vector<std::string> disturbances(const machine& at_start, const machine& at_end);

} // namespace perf
