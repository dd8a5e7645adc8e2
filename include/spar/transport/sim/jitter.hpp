// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Random delays of simulated messages.
#pragma once

#include <spar/core/util/algobase.hpp>
#include <spar/core/util/splitmix.hpp>

#include <cstdint>
#include <vector>

namespace spar::detail {

/// Delays the arrival of each simulated message by a random time below a maximum. Messages for which `delayed`
/// is called with the same `key` still arrive in order.
class sim_jitter {
 public:
  /// `most` is the largest delay, in virtual seconds; `seed` determines all delays.
  sim_jitter(double most, std::uint64_t seed) : most_(most), seed_(seed) {
    if (most > 0) last_arrival_.assign(65536, 0);
  }

  /// Returns the time `arrival` plus a random delay. Messages that must stay in order have the same `key`; each message
  /// has a different `number`, which determines the delay.
  [[nodiscard]] double delayed(double arrival, std::uint64_t key, std::uint64_t number) {
    if (most_ <= 0) return arrival;
    const std::uint64_t random = splitmix(seed_ ^ splitmix(number));
    arrival += most_ * static_cast<double>(random >> 11) * 0x1p-53;
    // Messages with different keys that share one of the 65536 slots also stay in order, which is harmless.
    double& last = last_arrival_[key % last_arrival_.size()];
    return last = std::max(arrival, last);
  }

 private:
  double most_;
  std::uint64_t seed_;
  std::vector<double> last_arrival_; // the latest time of arrival for each slot, that is, each key modulo 65536
};

} // namespace spar::detail
