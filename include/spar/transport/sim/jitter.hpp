// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Random delays of simulated messages.
#pragma once

#include <spar/core/util/algobase.hpp>
#include <spar/core/util/splitmix.hpp>

#include <cstdint>
#include <vector>

namespace spar::detail {

/// Delays each message by a random time below a maximum. Messages of one stream of messages stay in order.
class sim_jitter {
 public:
  /// `most`: virtual seconds.
  sim_jitter(double most, std::uint64_t seed) : most_(most), seed_(seed) {
    if (most > 0) last_arrival_.assign(65536, 0);
  }

  /// The delayed time of an arrival. `key` is the same for messages that must stay in order; `number` is a new one for
  /// each message.
  [[nodiscard]] double delayed(double arrival, std::uint64_t key, std::uint64_t number) {
    if (most_ <= 0) return arrival;
    const std::uint64_t random = splitmix(seed_ ^ splitmix(number));
    arrival += most_ * static_cast<double>(random >> 11) * 0x1p-53;
    // Keys that share a slot are kept in order as well, which does no harm.
    double& last = last_arrival_[key % last_arrival_.size()];
    return last = std::max(arrival, last);
  }

 private:
  double most_;
  std::uint64_t seed_;
  std::vector<double> last_arrival_; // by key
};

} // namespace spar::detail
