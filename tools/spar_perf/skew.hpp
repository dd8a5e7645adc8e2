// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Who is late by how much, as in the microbenchmark of eager-SGD (section 6.1, figure 8).
#pragma once

#include <cstdint>
#include <string_view>

namespace perf {

/// - linear: rank r is late by r delays;
/// - one: one rank, drawn in each iteration, is late by a delay;
/// - random: each rank is late by some time up to a delay.
enum class skew_kind { none, linear, one, random };

inline constexpr std::string_view skew_names[] = {"none", "linear", "one", "random"};

struct skew {
  skew_kind kind = skew_kind::none;
  double delay = 0.01; ///< seconds
  std::uint64_t seed = 1;

  [[nodiscard]] bool any() const noexcept { return kind != skew_kind::none; }
  /// Seconds: the same for all systems.
  [[nodiscard]] double of(int rank, int ranks, int iteration) const;
};

} // namespace perf
