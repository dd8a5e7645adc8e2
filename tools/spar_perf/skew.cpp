// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Computes the delay of each rank in each iteration.
#include "skew.hpp"

#include <random>

namespace spar::perf {

double skew::of(int rank, int ranks, int iteration) const {
  std::seed_seq numbers{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32),
                        static_cast<std::uint32_t>(iteration)};
  std::mt19937 random(numbers); // the same on every rank
  switch (kind) {
  case skew_kind::linear:
    return rank * delay;
  case skew_kind::one:
    return random() % static_cast<unsigned>(ranks) == static_cast<unsigned>(rank) ? delay : 0;
  case skew_kind::random:
    random.discard(static_cast<unsigned>(rank));
    return delay * static_cast<double>(random()) / static_cast<double>(std::mt19937::max());
  default:
    return 0;
  }
}

} // namespace spar::perf
