// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The cores on which simulated ranks do their local work.
#pragma once

#include <spar/core/util/algobase.hpp>

#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

namespace spar::detail {

/// Fewer cores than ranks; without any, each rank has a core of its own.
class sim_cores {
 public:
  explicit sim_cores(std::size_t count) : free_from_(count, 0.0) {}

  /// The time at which `seconds` of work are done that a rank has at the time `begin`. The work takes the core that has
  /// been idle for the shortest time, often the one that the rank has used just before; where all are busy, the first
  /// that will be free.
  [[nodiscard]] double done_at(double begin, double seconds) noexcept {
    if (free_from_.empty() || seconds <= 0) return begin + seconds;
    const auto order = [=](double free) { return std::pair(free > begin, std::fabs(free - begin)); };
    double& free = *least_of(free_from_, order);
    return free = std::max(begin, free) + seconds;
  }

 private:
  std::vector<double> free_from_; // of each core
};

} // namespace spar::detail
