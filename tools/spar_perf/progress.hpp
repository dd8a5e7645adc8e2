// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tells people how far a long measurement is.
#pragma once

#include <chrono>
#include <string>

namespace spar::perf {

/// Writes a line to stderr at the begin of a step when ten seconds have passed since the start or since the last line.
/// Only one rank has a progress.
class progress {
 public:
  /// `what` is what the `steps` steps belong to, such as "density 0.01".
  progress(std::string what, int steps) : what_(std::move(what)), steps_(steps) {}

  void begin_step();

 private:
  using clock = std::chrono::steady_clock;

  std::string what_;
  int steps_;
  int begun_ = 0;
  clock::time_point begin_ = clock::now(), last_ = begin_;
};

} // namespace spar::perf
