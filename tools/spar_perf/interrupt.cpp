// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "interrupt.hpp"

#include <csignal>

namespace spar::perf {

namespace {

volatile std::sig_atomic_t caught = 0;

} // namespace

void catch_interrupts() {
  const auto note = [](int signal) {
    caught = 1;
    std::signal(signal, SIG_DFL);
  };
  std::signal(SIGINT, note);
  std::signal(SIGTERM, note);
}

bool interrupted() noexcept { return caught != 0; }

} // namespace spar::perf
