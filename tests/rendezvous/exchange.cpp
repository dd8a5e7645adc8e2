// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Meets the other ranks by the variables of the environment. Rank 0 prints what all have said.
#include <spar/rendezvous/rendezvous.hpp>

#include <cstdio>
#include <exception>
#include <string>

int main() {
  try {
    const auto job = spar::rendezvous::from_environment();
    const auto texts = job.exchange("rank " + std::to_string(job.rank()) + " of " + std::to_string(job.size()));
    for (const auto& text : texts)
      if (job.rank() == 0) std::puts(text.c_str());
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
