// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Delays of late ranks, as in the microbenchmark of eager-SGD (section 6.1, figure 8).
#pragma once

#include <cstdint>
#include <string_view>

namespace spar::perf {

/// - none: no rank is late;
/// - linear: rank r is late by r delays;
/// - one: in each iteration, one random rank is late by one delay;
/// - random: each rank is late by a random time of up to one delay.
enum class skew_kind { none, linear, one, random };

inline constexpr std::string_view skew_names[] = {"none", "linear", "one", "random"};

struct skew {
  skew_kind kind = skew_kind::none;
  double delay = 0.01; ///< seconds
  std::uint64_t seed = 1;

  [[nodiscard]] bool any() const noexcept { return kind != skew_kind::none; }
  /// The seconds by which a rank is late in an iteration, the same for all systems.
  [[nodiscard]] double of(int rank, int ranks, int iteration) const;
};

} // namespace spar::perf
