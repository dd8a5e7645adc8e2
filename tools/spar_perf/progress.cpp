// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "progress.hpp"

#include <fmt/format.h>

namespace spar::perf {

void progress::begin_step() {
  const int ended = begun_++;
  const auto now = clock::now();
  if (ended == 0 || now - last_ < std::chrono::seconds(10)) return;
  last_ = now;
  const double each = std::chrono::duration<double>(now - begin_).count() / ended;
  fmt::print(stderr, "spar_perf: {}: {} % done, about {:.0f} s to go\n", what_, 100L * ended / steps_,
             each * (steps_ - ended));
}

} // namespace spar::perf
