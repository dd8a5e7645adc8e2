// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Random delays of simulated messages.
#pragma once

#include <spar/core/util/algobase.hpp>
#include <spar/core/util/splitmix.hpp>

#include <cstdint>
#include <vector>

namespace spar::detail {

/// Delays each message by a random time below a maximum. Messages with equal keys stay in order.
class sim_jitter {
 public:
  /// `most` is the largest delay, in virtual seconds.
  sim_jitter(double most, std::uint64_t seed) : most_(most), seed_(seed) {
    if (most > 0) last_arrival_.assign(65536, 0);
  }

  /// Returns the delayed arrival time. Messages that must stay in order have the same `key`; each message has a
  /// different `number`.
  [[nodiscard]] double delayed(double arrival, std::uint64_t key, std::uint64_t number) {
    if (most_ <= 0) return arrival;
    const std::uint64_t random = splitmix(seed_ ^ splitmix(number));
    arrival += most_ * static_cast<double>(random >> 11) * 0x1p-53;
    // Messages whose keys share a slot stay in order as well, which is harmless.
    double& last = last_arrival_[key % last_arrival_.size()];
    return last = std::max(arrival, last);
  }

 private:
  double most_;
  std::uint64_t seed_;
  std::vector<double> last_arrival_; // by key
};

} // namespace spar::detail
