// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The cores on which simulated ranks do their local work.
#pragma once

#include <spar/core/util/algobase.hpp>

#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

namespace spar::inline v0_1::detail {

/// The cores that all simulated ranks share, `count` in number. If `count` is 0, each rank has its own core.
class sim_cores {
 public:
  explicit sim_cores(std::size_t count) : free_from_(count, 0.0) {}

  /// Assigns `seconds` of work, which a rank starts at the time `begin`, to a core, and returns the time at which the
  /// work ends. The work runs on the idle core that became free last, which is often the core that the rank used just
  /// before. If all cores are busy, the work waits for the core that becomes free first.
  [[nodiscard]] double done_at(double begin, double seconds) noexcept {
    if (free_from_.empty() || seconds <= 0) return begin + seconds;
    const auto order = [=](double free) { return std::pair(free > begin, std::fabs(free - begin)); };
    double& free = *least_of(free_from_, order);
    return free = std::max(begin, free) + seconds;
  }

 private:
  std::vector<double> free_from_; // the virtual time, in seconds, at which each core becomes free
};

} // namespace spar::inline v0_1::detail
