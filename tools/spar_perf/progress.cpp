// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "progress.hpp"

#include <fmt/format.h>

namespace spar::perf {

void progress::step() {
  ++done_;
  const auto now = clock::now();
  if (now - last_ < std::chrono::seconds(10)) return;
  last_ = now;
  const double each = std::chrono::duration<double>(now - begin_).count() / done_;
  fmt::print(stderr, "spar_perf: {}: iteration {} of {}, about {:.0f} s to go\n", what_, done_, steps_,
             each * (steps_ - done_));
}

} // namespace spar::perf
