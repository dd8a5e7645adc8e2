// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The ranks that may have died, as far as a rank over UCX knows: their process has ended, or a connection has failed.
#pragma once

#include <spar/core/address.hpp>
#include <spar/core/util/algobase.hpp>

#include <cstddef>
#include <limits>
#include <vector>

namespace spar::inline v0_1::detail {

/// A process also ends, and its connections close, after its rank has left in order. The message in which it says so
/// may still be on its way to this rank. So a rank that is suspected counts as dead only if no such message has arrived
/// within `patience` seconds.
class ucx_deaths {
 public:
  static constexpr double patience = 0.1;

  explicit ucx_deaths(rank_t ranks) : since_(static_cast<std::size_t>(ranks), never) {
    suspects_.reserve(static_cast<std::size_t>(ranks));
  }

  /// From the time `now` in seconds on, `rank` may be dead; `why` is a text that lives as long as the program.
  void suspect(rank_t rank, const char* why, double now) noexcept {
    double& since = since_[static_cast<std::size_t>(rank)];
    if (since != never) return;
    since = now;
    suspects_.push_back({rank, why});
  }
  [[nodiscard]] bool suspects(rank_t rank) const noexcept { return since_[static_cast<std::size_t>(rank)] != never; }

  /// Calls `dead(rank, why)` for each rank that has been suspected for long enough at the time `now` and for which
  /// `left(rank)` is false. Returns the time of the next check.
  template <class Left, class Dead>
  double confirm(double now, Left left, Dead dead) {
    double next = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < suspects_.size();) {
      const suspected one = suspects_[i];
      const double deadline = since_[static_cast<std::size_t>(one.rank)] + patience;
      if (now < deadline) {
        next = std::min(next, deadline);
        ++i;
        continue;
      }
      suspects_[i] = suspects_.back();
      suspects_.pop_back();
      if (!left(one.rank)) dead(one.rank, one.why);
    }
    return next;
  }

 private:
  static constexpr double never = std::numeric_limits<double>::infinity();
  struct suspected {
    rank_t rank;
    const char* why;
  };
  std::vector<double> since_; // of each rank
  std::vector<suspected> suspects_;
};

} // namespace spar::inline v0_1::detail
